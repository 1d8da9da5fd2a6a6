"""Answers to given prompts: distilled traces of an endpoint or a checkpoint.

Each row is asked as it is, its own last answer left out. With the filters `incomplete_thoughts` and `accuracy` this is how OLMo 3
completes prompts whose traces are missing or cut (arXiv 2512.13961), and with several samples it is rejection sampling.
"""

from __future__ import annotations

from ingot.post.synthesis.maker import Maker


class Answers(Maker):
    """The writer's own answers to the prompts of files."""
