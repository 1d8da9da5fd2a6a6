"""The doctor's check of layouts: whether every kind of parallelism trains here as one process does, with every method."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from ingot.train.device import choose_device
from ingot.train.hardware import cpu_name
from ingot.train.layouts.cases import list_cases
from ingot.train.layouts.groups import CaseMachine, choose_machine
from ingot.train.layouts.run import CaseVerdict, prove
from ingot.workspace.errors import IngotError

HOW = {"cpu": "processes on the CPU", "card": "processes that share a GPU", "gpus": "a GPU for each process"}


def examine_layouts(
    pattern: str, device: str, processes: int, show: Callable[[CaseVerdict], None]
) -> tuple[CaseMachine, list[CaseVerdict]]:
    """Run the cases whose name matches, each on at most so many processes; shows each as soon as it is known."""
    every = list_cases(processes)
    cases = [case for case in every if fnmatchcase(case.name, pattern)]
    if not cases:
        names = ", ".join(case.name for case in every[:8])
        raise IngotError(
            f"no layout of at most {processes} processes is called {pattern}", fix=f"choose from {names} …"
        )
    machine = choose_machine(choose_device(device).type, processes)
    return machine, prove(cases, machine, show)


def as_line(verdict: CaseVerdict) -> str:
    """A verdict as a line of a table: the case, what came of it, the largest differences of losses, gradients and weights."""
    line = f"{verdict.case:38}  {verdict.verdict:9}"
    if verdict.values is not None:
        line += "".join(f"  {value or 0.0:7.1e}" for value in (verdict.values, verdict.gradients, verdict.weights))
    return f"{line}  {verdict.text}".rstrip()


HEADING = f"{'layout':38}  {'':9}  {'losses':7}  {'grads':7}  {'weights':7}"


def as_record(machine: CaseMachine, verdicts: Sequence[CaseVerdict]) -> dict[str, Any]:
    """What was run where, for `--json`; the table of docs/parallel.md is made from it."""
    device = cpu_name() if machine.how == "cpu" else torch.cuda.get_device_name()
    where = {"how": machine.how, "device": device, "torch": torch.__version__, "python": platform.python_version()}
    return {**where, "cases": [verdict.as_json() for verdict in verdicts]}
