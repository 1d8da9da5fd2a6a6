"""Token mixers (attention and recurrent layers): one file per mixer, all with the same interface (mixer.py)."""
