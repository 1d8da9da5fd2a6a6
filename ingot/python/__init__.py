"""The stages as functions of Python: `ingot.sft(model, rows, steps=100)`, the same as a recipe of that stage."""
