"""A tool that ends its process; in a file of its own, because a child loads the whole file."""

from __future__ import annotations

import os


def fragile(what: str) -> str:
    """Ends its process when told so."""
    if what == "child dies":
        os._exit(9)
    return "fine"
