"""What suites ask of a model, and who answers: an engine in this process, a server, or the memory of an earlier run."""
