"""Norms, rotations and gated products between the matrix products of a layer."""
