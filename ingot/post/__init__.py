"""Post-training: SFT, preferences, RL and distillation, each a small class that stamps streams for the one trainer."""
