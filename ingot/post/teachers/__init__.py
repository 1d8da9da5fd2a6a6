"""Teachers of distillation: local or on a server, with the student's tokenizer or another."""
