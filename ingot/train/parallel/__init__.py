"""Training one model with many processes: the mesh of a recipe, and how each kind of parallelism divides model and data."""
