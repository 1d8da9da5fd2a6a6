"""Decides how often each document is shown: better ones more often, under a cap."""
