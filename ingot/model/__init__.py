"""The parts of a model, and the transformer made of them. Single-device code that reads like the math."""
