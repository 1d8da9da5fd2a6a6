"""Sampling from a model: an engine with continuous batching, structured output, speculative decoding, quantised weights."""
