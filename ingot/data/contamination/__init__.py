"""Finds evals in documents: what the steps `decontaminate` and `decon` share."""
