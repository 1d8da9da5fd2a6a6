"""What RL practises on: pass rates of tasks, filters by them before and during a run, and curricula."""
