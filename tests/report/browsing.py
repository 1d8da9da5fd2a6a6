"""What the browser tests share: where chromium is, and how a page is read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")  # the first takes a quarter less time
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SECTIONS = ("flow", "evals", "data", "tokenizer", "curves", "generations", "rollouts", "stages")
WIDE, NARROW = 1280, 390

Open = Callable[..., Any]


def texts(page: Any, selector: str) -> list[str]:
    """What a person reads in the elements, hidden helpers left out."""
    found: list[str] = page.locator(selector).all_inner_texts()
    return [re.sub(r"\s+", " ", text).strip() for text in found]


def overflow(page: Any) -> int:
    """How many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def four_digits(value: float) -> str:
    return f"{float(f'{value:.4g}'):g}".replace("-", "−")
