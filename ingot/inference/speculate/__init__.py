"""Speculative decoding: drafts several tokens cheaply, and keeps those that the model would have drawn."""
