"""Steps of curation, one file each: options and work together. A step is found by the name of its file."""
