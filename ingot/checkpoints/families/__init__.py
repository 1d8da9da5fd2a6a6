"""One file per group of Hugging Face model types: how their config.json and their tensors correspond to ours."""
