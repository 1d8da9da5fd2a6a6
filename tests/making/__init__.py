"""What tests of all rooms are made of: rows on disk, the folder of a stage, other processes and waiting for them.

What only one room needs is beside its tests (`tests/post/making.py`, `tests/train/toy.py`, `tests/model/tiny.py`).
"""
