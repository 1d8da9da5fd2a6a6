"""Finds an eval suite: by name, in a file of the user's, in data alone, or a task of lm-evaluation-harness."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo

from ingot.evals.bases.data_suite import load_data_suite
from ingot.evals.bases.suite import Suite
from ingot.workspace.kinds import Kinds
from ingot.workspace.outside import DATA_SPEC

HARNESS = "lm_eval:"


def entry_of(name: str) -> dict[str, str]:
    """The entry of a recipe that a suite's name stands for: `lm_eval:TASK` is the suite lm_eval with this task."""
    return {"suite": "lm_eval", "task": name.removeprefix(HARNESS)} if name.startswith(HARNESS) else {"suite": name}


class Suites(Kinds[Suite]):
    """The eval suites: by name, `file.py:Name`, `file.yaml`, or `lm_eval:TASK`."""

    def read(self, value: Any, info: ValidationInfo | None = None) -> Suite:
        return super().read(entry_of(value) if isinstance(value, str) else value, info)

    def find(self, name: str) -> type[Suite]:
        """The class of a suite; that of a YAML file is made of it."""
        if not DATA_SPEC.fullmatch(name):
            return super().find(name)
        return load_data_suite(name)


SUITES = Suites(Suite, "eval suite")  # type: ignore[type-abstract]
