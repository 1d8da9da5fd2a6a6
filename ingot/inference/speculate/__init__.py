"""Speculative decoding: several tokens are drafted cheaply, and one pass of the model says which of them it would have drawn."""
