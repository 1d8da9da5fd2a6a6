"""An OpenAI-compatible server over one engine: requests become prompts and samplings, tokens become answers."""
