"""Benchmarks: `python benchmarks/NAME.py` compares with other libraries on this machine."""
