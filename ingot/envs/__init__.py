"""Tasks with verifiable answers, tools, and rollouts: a policy's tokens become scored trajectories.

Knows nothing of trainers or engines: whoever samples is a `Policy` (see task.py).
"""
