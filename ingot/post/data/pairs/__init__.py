"""Preference pairs: from files, from the model's own answers, from two models, online."""
