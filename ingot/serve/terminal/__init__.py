"""Chat in the terminal, with a model in this process or with a server."""
