"""The chat page of `ingot ui`: one self-contained page, its tools, and the guard of its server."""
