"""Runs curation: shards of documents, content-addressed tasks, files in which tasks exchange records."""
