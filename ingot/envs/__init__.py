"""Tasks with verifiable answers, tools, and rollouts: a policy's tokens become scored trajectories.

It knows nothing of trainers or engines: what samples is a `Policy` (see task.py).
"""
