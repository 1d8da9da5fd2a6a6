"""What an ablation will cost, before it starts: runs, FLOPs and time of the stages that are not finished.

Time is the planner's: FLOPs over the speed of this machine, for one run after the other. Where runs of this ablation have
finished already, their own seconds for each FLOP say it better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.lab.ablation import Ablation, Arm
from ingot.lab.run_ablation import run_flops, shared_folders
from ingot.lab.state import read_state
from ingot.planner.cost import Cost, stage_costs
from ingot.planner.plan import make_plan


@dataclass(frozen=True)
class ArmCost:
    """An arm with what one of its runs costs, and how many are left."""

    arm: Arm
    parameters: int | None
    flops: int | None
    runs: int
    left: int


@dataclass(frozen=True)
class PlanCost:
    """The cost of what is left; None where it is not known in advance."""

    arms: tuple[ArmCost, ...]
    left: int
    flops: float | None
    seconds: float | None
    machine: str
    shared: tuple[str, ...]  # stages that are not finished and that several runs need
    spent_seconds: float
    spent_flops: float

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "arms": [
                {
                    "arm": row.arm.name,
                    "set": list(row.arm.changes),
                    "variables": [variable.key for variable in row.arm.variables],
                    "matched": None if row.arm.matched is None else row.arm.matched.text,
                    "paired": row.arm.paired,
                    "parameters": row.parameters,
                    "flops": row.flops,
                    "runs": row.runs,
                    "to_do": row.left,
                }
                for row in self.arms
            ],
            "to_do": self.left,
            "flops": self.flops,
            "seconds": self.seconds,
            "shared": list(self.shared),
            "spent": {"seconds": self.spent_seconds, "flops": self.spent_flops},
        }


def plan_cost(ablation: Ablation, runs: Path) -> PlanCost:
    """The cost of all runs that are not finished; writes nothing."""
    rows, total, left, state = [], 0.0, 0, read_state(ablation.folder(runs))
    known, measured_flops, measured_seconds = True, 0.0, 0.0
    counted: set[Path] = set()  # what several runs need costs once
    for arm in (*ablation.arms, *ablation.lengths):
        own = [run for run in ablation.runs if run.arm is arm]
        to_do = 0
        stage = ablation.targets[0].stage
        cost = stage_costs(own[0].recipe, look=True, table=ablation.table).get(stage, Cost())
        for run in own:
            works = ablation.works(run, runs)
            done = next(work.done for work in works if work.stage.name == stage)
            if done is not None and cost.flops is not None:
                measured_flops, measured_seconds = measured_flops + cost.flops, measured_seconds + done.seconds
            if run.name in state.pruned or all(work.done is not None for work in works):
                continue
            to_do += 1
            flops = run_flops(ablation, run, [work for work in works if work.folder not in counted])
            counted |= {work.folder for work in works}
            known = known and flops is not None
            total += flops or 0.0
        left += to_do
        rows.append(ArmCost(arm, cost.parameters, cost.flops, len(own), to_do))
    seconds, machine = None, ""
    if known and measured_flops:
        seconds, machine = total / measured_flops * measured_seconds, "as fast as the finished runs"
    elif known:
        seconds, machine = _planned(ablation, runs, total)
    folders = shared_folders(ablation, runs)
    works = [work for run in ablation.runs for work in ablation.works(run, runs)]
    shared = dict.fromkeys(work.stage.name for work in works if work.folder in folders and work.done is None)
    return PlanCost(
        tuple(rows), left, total if known else None, seconds, machine, tuple(shared), state.seconds, state.flops
    )


def _planned(ablation: Ablation, runs: Path, flops: float) -> tuple[float | None, str]:
    """By the planner's estimate for the baseline, on this machine."""
    plan = make_plan(ablation.runs[0].recipe, runs, table=ablation.table)
    stage = next(stage for stage in plan.stages if stage.name == ablation.targets[0].stage)
    if stage.seconds is None or not stage.cost.flops:
        return None, ""
    where = (
        plan.machine.device if stage.placement is None else f"on {stage.placement.gpus} {stage.placement.gpu.upper()}"
    )
    return flops / stage.cost.flops * stage.seconds, f"estimated, {where}"
