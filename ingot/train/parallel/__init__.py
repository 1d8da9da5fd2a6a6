"""Many processes, one model: the mesh of a recipe, and how each kind of parallelism divides model and data over it."""
