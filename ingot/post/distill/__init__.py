"""Distillation: the stage, its batches, its teachers."""
