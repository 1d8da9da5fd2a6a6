"""How tokens exchange information: one file per mixer, all with the same interface (mixer.py)."""
