"""Reads and checks a recipe (a YAML file of stages), resolves the inputs of each stage, names its work by a hash, reuses what is
finished, and runs the rest."""
