"""Rewards: reward models, what is added to a verifier's reward, returns of single tokens."""
