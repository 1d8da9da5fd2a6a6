"""Plays episodes: a policy's turns, tools and rewards between them, many episodes at a time."""
