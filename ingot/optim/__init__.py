"""Optimizers (AdamW, Muon, QK-clip), their parameter groups, learning-rate schedules and batch sizes."""
