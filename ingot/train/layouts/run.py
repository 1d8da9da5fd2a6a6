"""Compares every case with one process, and says what came of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ingot.train.layouts.cases import Case, find_refusal
from ingot.train.layouts.differences import find_differences
from ingot.train.layouts.groups import CaseJob, CaseMachine, run_jobs
from ingot.train.layouts.steps import Numbers
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.config import content_hash
from ingot.workspace.errors import CheckFailed


@dataclass(frozen=True)
class CaseVerdict:
    """What came of a case, and the largest relative differences from one process."""

    case: str
    kinds: tuple[str, ...]
    method: str | None
    processes: int
    verdict: Literal["equal", "refused", "different", "failed"]
    text: str = ""  # why
    values: float | None = None
    gradients: float | None = None
    weights: float | None = None

    @property
    def good(self) -> bool:
        """Whether the pair works, or is refused when its recipe is read."""
        return self.verdict in ("equal", "refused")

    def as_json(self) -> dict[str, Any]:
        """Without what is not there."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


def prove(cases: Sequence[Case], machine: CaseMachine, say: Callable[[CaseVerdict], None]) -> list[CaseVerdict]:
    """Run the cases and what they are compared with; says each verdict as soon as it is known, and returns all in order."""
    verdicts: dict[str, CaseVerdict] = {}

    def note(case: Case, verdict: CaseVerdict) -> None:
        verdicts[case.name] = verdict
        say(verdict)

    chosen = []
    for case in cases:
        refusal = find_refusal(case)
        if refusal is None:
            chosen.append(case)
        else:
            note(case, _verdict(case, "refused", refusal))
    references = {case.name: make_reference(case) for case in chosen}
    alone: dict[str, list[Numbers] | str] = {}
    with tempfile.TemporaryDirectory(prefix="ingot-layouts-") as name:
        folder = Path(name)
        different = list({job.name: job for job in references.values()}.values())
        run_jobs(different, machine, folder, lambda job, numbers: alone.update({job.name: numbers}))

        def lacks_reference(job: CaseJob) -> bool:
            return isinstance(alone[references[job.case.name].name], str)

        def compare(job: CaseJob, numbers: list[Numbers] | str) -> None:
            note(job.case, judge(job.case, numbers, alone[references[job.case.name].name], machine.device))

        jobs = [CaseJob(f"case{number}", case) for number, case in enumerate(chosen)]
        run_jobs([job for job in jobs if not lacks_reference(job)], machine, folder, compare)
        for job in filter(lacks_reference, jobs):
            compare(job, "")
    return [verdicts[case.name] for case in cases]


def make_reference(case: Case) -> CaseJob:
    """The run in one process that a case is compared with; cases that differ in their mesh only share it."""
    scales = None
    if case.training.get("precision") == "float8":
        shared = {axis: size for axis, size in case.mesh.items() if axis in ("tensor", "context")}
        scales = MeshConfig.model_validate(shared) if shared else None
    alone = replace(case, mesh={})
    known = json.dumps([dict(case.model), dict(case.training), None if scales is None else scales.model_dump()])
    return CaseJob(f"alone-{content_hash(known, digits=12)}", alone, scales)


def judge(case: Case, ranks: list[Numbers] | str, alone: list[Numbers] | str, device: str) -> CaseVerdict:
    """Whether the ranks' numbers are those of one process."""
    for who, numbers in (("one process: ", alone), ("", ranks)):
        if isinstance(numbers, str):
            return _verdict(case, "failed", who + numbers)
    assert not isinstance(ranks, str) and not isinstance(alone, str)
    try:
        worst = find_differences(ranks, alone[0], same_bits=device == "cpu")
    except CheckFailed as error:
        return _verdict(case, "different", error.problem)
    bounds = asdict(case.bounds(device))
    far = [f"{kind} by {worst[kind]:.1e}, allowed {bound:.0e}" for kind, bound in bounds.items() if worst[kind] > bound]
    measured = {kind: worst[kind] for kind in bounds}
    return _verdict(case, "different" if far else "equal", "; ".join(far), **measured)


def _verdict(case: Case, verdict: Any, text: str = "", **measured: float) -> CaseVerdict:
    return CaseVerdict(case.name, case.kinds, case.method, case.processes, verdict, text, **measured)
