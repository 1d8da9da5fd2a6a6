"""Basics that all rooms use: run folders, artifacts and their hashes, progress, metrics, errors. Imports no other room."""
