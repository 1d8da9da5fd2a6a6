"""Products of tokens with their experts, and sums over experts."""
