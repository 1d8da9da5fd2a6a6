"""The steps of examples/steps/, found as a recipe finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ingot.data.outside import STEPS
from ingot.data.step import Step

FOLDER = Path(__file__).parents[3] / "examples" / "steps"
LINE_MODIFIERS = f"{FOLDER}/line_modifiers.py:LineModifiersStep"
MADLAD = f"{FOLDER}/madlad.py:MadladStep"
COMPRESSION_RATIO = f"{FOLDER}/compression_ratio.py:CompressionRatioStep"


def example(spec: str, **options: Any) -> Step:
    """A step from a file outside of the package."""
    return STEPS.read({"step": spec, **options})
