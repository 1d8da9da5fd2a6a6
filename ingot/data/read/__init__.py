"""Reads files of any kind into documents, in splits that can be read in parallel."""
