"""The chat page of `ingot ui`: one self-contained page, the tools it may run, and whom it may be served to."""
