"""Documents to batches: the tokenizer, the chat format, token shards, packing, and the order of pre-training data.

Everything here is deterministic: the same documents, config and seed give the same tokens in the same order, on any
number of processes.
"""
