"""The vocabulary of parts, the transformer made of them, and weights in and out. Single-device code that reads like the math."""
