"""Products of a few rows with a large matrix on the CPU."""
