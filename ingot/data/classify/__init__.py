"""Classifies documents by small models: language, kind, topic and quality."""
