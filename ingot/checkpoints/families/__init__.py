"""Published model types: a file per group of Hugging Face model types that says how their configuration and tensors
correspond to Ingot's parts. table.py lists them all; family.py is the interface."""
