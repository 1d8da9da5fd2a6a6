"""Watching a run: rules that look at every step's numbers and act, a heartbeat, and the watchdog that restarts."""
