"""Tools that end or hang; in a file of their own that imports nothing heavy, because a child loads the whole file."""

from __future__ import annotations

import os
import time


def fragile(what: str) -> str:
    """Ends its process when told so."""
    if what == "child dies":
        os._exit(9)
    return "fine"


def hang(expression: str) -> str:
    """Hangs when told so, else says in which process it runs."""
    if expression == "1":
        time.sleep(20.0)
    return str(os.getpid())
