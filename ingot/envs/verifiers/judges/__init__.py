"""Judges: models that score answers by a rubric or against each other, and cannot be talked to by what they judge."""
