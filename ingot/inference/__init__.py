"""Sampling from a model: the engine that RL and evals wait for, plain text generation, and a chat in the terminal."""
