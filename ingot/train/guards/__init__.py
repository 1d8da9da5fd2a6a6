"""Watching a run: rules that check every step's numbers and act, a heartbeat, and the watchdog that restarts it."""
