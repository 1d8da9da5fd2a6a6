"""Experiments over recipes: the same recipe with other values, run, measured and compared."""
