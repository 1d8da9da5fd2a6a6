"""An OpenAI-compatible server over one sampling engine."""
