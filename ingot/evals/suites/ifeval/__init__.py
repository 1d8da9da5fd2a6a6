"""IFEval (Zhou et al. 2023, arXiv 2311.07911): prompts whose instructions can be checked by code; its four numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ingot.envs.verifiers.instructions.instruction import Instruction
from ingot.evals.bases.instruction_rows import InstructionRows
from ingot.evals.suites.ifeval.published_instructions import as_published


class Ifeval(InstructionRows):
    """Instructions that can be checked: word counts, keywords, formats."""

    local: ClassVar[tuple[str, ...]] = ("ifeval/ifeval*.jsonl*", "ifeval/input_data*.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:google/IFEval:train",)
    labels: ClassVar[Mapping[str, str]] = {
        "prompt_strict": "IFEval, prompts followed, strict",
        "prompt_loose": "IFEval, prompts followed, loose",
    }

    def instruction(self, id: str, kwargs: Mapping[str, Any], place: str) -> Instruction:
        """As the published program reads it."""
        return as_published(super().instruction(id, kwargs, place))
