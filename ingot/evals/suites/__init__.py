"""What is measured, one suite a file: held-out tasks, bits per byte, needle retrieval, free continuations."""
