"""Estimates what a recipe takes before it runs (layout, memory, speed, cost), and checks the machine (doctor)."""
