"""IFBench (Pyatkin et al. 2025, arXiv 2507.02833): 58 kinds of instructions that IFEval has not; reported is prompt_loose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.evals.bases.instruction_rows import InstructionRows


class Ifbench(InstructionRows):
    """Instructions beyond IFEval's, to see what was not trained on."""

    local: ClassVar[tuple[str, ...]] = ("ifbench/*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:allenai/IFBench_test:train",)
    labels: ClassVar[Mapping[str, str]] = {
        "prompt_loose": "IFBench, prompts followed, loose",
        "prompt_strict": "IFBench, prompts followed, strict",
    }
