"""Source code: its language, its licence, and whether a machine wrote it."""
