"""Where a token stands: rotary positions and their extensions."""
