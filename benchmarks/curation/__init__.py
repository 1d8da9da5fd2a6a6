"""The cases of benchmarks/data.py, one room of data/ a file."""
