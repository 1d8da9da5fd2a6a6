"""Raw text to clean documents: read, tell prose from code, filter, deduplicate, decontaminate, score.

`curate.py` is the flow from top to bottom; every other module is one idea that it uses.
"""
