"""The ground floor: run folders, artifacts and their hashes, progress, metrics, errors. Used by all rooms, knows none."""
