"""The algorithms of post-training, one a file: options, what is stamped on tokens, and the loss terms (post/algorithm.py)."""
