"""Optimizers (AdamW, Muon, QK-clip), learning-rate schedules and batch sizes, and which parameters they apply to."""
