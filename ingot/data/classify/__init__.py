"""What a document is: its language, kind, topic and quality, told by small models."""
