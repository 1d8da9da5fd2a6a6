"""Ways to use a model: the OpenAI-compatible server, the chat in the terminal, and the web page."""
