"""The loss and the draw of a token over the vocabulary."""
