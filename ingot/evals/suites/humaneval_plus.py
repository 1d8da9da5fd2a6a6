"""HumanEval+ (EvalPlus, arXiv 2305.01210): HumanEval with about eighty times as many inputs (evalplus.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.evals.bases.evalplus import EvalPlus, labels


class HumanevalPlus(EvalPlus):
    """HumanEval's functions against many more inputs."""

    local: ClassVar[tuple[str, ...]] = ("humaneval_plus/*.jsonl*", "evalplus/HumanEvalPlus*.jsonl*")
    labels: ClassVar[Mapping[str, str]] = labels("HumanEval+")
    more_stops: ClassVar[tuple[str, ...]] = ("\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert ")
