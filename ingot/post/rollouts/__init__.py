"""Training on what the policy samples: the batches of RL, synchronous and asynchronous, and their state."""
