"""Samplers in processes of their own, for RL in which sampling and training run at the same time."""
