"""Reinforcement learning: the stage, its batches, its checks."""
