"""Tables and kernels for source code: its language, and lines that are long, generated or only data."""
