"""The LM evaluation harness as the reference: prompts rendered from its own task files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

REASON = "needs lm-eval (pip install 'ingot[evals]')"


class _Loader(yaml.SafeLoader):
    """Reads `!function utils.name` as its text."""


_Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def folder() -> Path:
    """Where its task files are."""
    package = pytest.importorskip("lm_eval", reason=REASON)
    return Path(next(iter(package.__path__))) / "tasks"


def task(file: str) -> dict[str, Any]:
    """A task file, as in "gsm8k/gsm8k.yaml"."""
    loaded: dict[str, Any] = yaml.load((folder() / file).read_text(encoding="utf-8"), _Loader)
    return loaded


def render(template: str, row: dict[str, Any]) -> str:
    """A template with a row's values, in the harness's own environment."""
    utils = pytest.importorskip("lm_eval.utils", reason=REASON)
    return str(utils.apply_template(template, row))


def few_shot(config: dict[str, Any], shots: list[dict[str, Any]], row: dict[str, Any]) -> str:
    """The whole prompt of a base model."""
    delimiter, between = config.get("target_delimiter", " "), config.get("fewshot_delimiter", "\n\n")
    text, target = config["doc_to_text"], config["doc_to_target"]
    before = [render(text, one) + delimiter + render(target, {**one, "is_fewshot": True}) + between for one in shots]
    return "".join(before) + render(text, row)
