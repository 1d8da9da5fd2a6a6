"""The losses: terms, the scores they read, and the fused head."""
