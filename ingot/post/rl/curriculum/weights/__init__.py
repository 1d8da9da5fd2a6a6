"""The curricula, one file each."""
