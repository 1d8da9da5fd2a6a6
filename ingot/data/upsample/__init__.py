"""How often each document is seen: better ones more often, under a cap."""
