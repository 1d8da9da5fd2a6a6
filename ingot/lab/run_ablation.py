"""Runs an ablation: what runs share first, then each run in a process of its own, several at a time, within a budget.

Whatever is finished is finished by its stage's folder and hash, not by any list of the laboratory: after a kill at any moment
the same call finds it and goes on. Runs that failed are tried again by every call; runs that were given up are not. A budget
counts all calls: its hours are those of all processes together, its FLOPs those of the finished runs by the planner's count.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.lab.ablation import Ablation, LabRun
from ingot.lab.ablation_config import BASELINE
from ingot.lab.processes import FAREWELL, LabJob, RunPool
from ingot.lab.state import LabState, read_state
from ingot.planner.cost import stage_costs
from ingot.recipe.folders import sweep
from ingot.recipe.work import StageWork
from ingot.workspace.errors import CheckFailed, RecipeError, RunLocked
from ingot.workspace.files import write_json
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.lock import lock_folder
from ingot.workspace.metrics import metric_by_step
from ingot.workspace.progress import Progress, format_seconds

WORKER = (sys.executable, "-m", "ingot.cli.lab_worker")
SHARED = "shared"
WRITE_EVERY = 2.0  # seconds between notes of what has been spent


@dataclass(frozen=True)
class Budget:
    """The most that an ablation may take, over all calls; None: no limit."""

    seconds: float | None = None
    flops: float | None = None


def run_ablation(
    ablation: Ablation,
    runs: Path,
    *,
    jobs: int = 1,
    budget: Budget | None = None,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    worker: Sequence[str] = WORKER,
    after: Callable[[], object] = lambda: None,
) -> LabState:
    """Run all runs that are not finished. `after` is called whenever one has ended."""
    folder = ablation.folder(runs)
    with _locked(runs / ablation.recipe.name) as descriptor:
        sweep(runs / ablation.recipe.name)
        state = read_state(folder)
        _predict(ablation, runs, state)
        state.failed = {}
        state.write(folder)
        session = _Session(
            ablation,
            runs,
            state,
            budget or Budget(),
            progress or Progress(),
            stop or StopSignal(),
            tuple(worker),
            descriptor,
            after,
        )
        session.run_shared()
        session.run_own(jobs)
        state.write(folder)
    return state


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The lock of the run folder. Processes of a laboratory that was killed hold it until they have saved: wait for these."""
    until = time.monotonic() + FAREWELL
    while True:
        try:
            with lock_folder(folder) as descriptor:
                yield descriptor
                return
        except RunLocked as error:
            if "has ended" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(1.0)


def _predict(ablation: Ablation, runs: Path, state: LabState) -> None:
    for arm in ablation.arms:
        own = [run for run in ablation.runs if run.arm is arm]
        measured = any(all(work.done is not None for work in ablation.works(run, runs)) for run in own)
        state.predict(arm.name, arm.predicted, measured=measured)


@dataclass
class _Session:
    """One call."""

    ablation: Ablation
    runs: Path
    state: LabState
    budget: Budget
    progress: Progress
    stop: StopSignal
    worker: tuple[str, ...]
    descriptor: int
    after: Callable[[], object]

    @property
    def folder(self) -> Path:
        return self.ablation.folder(self.runs)

    def run_shared(self) -> None:
        """Stages that several runs need, one after the other: data, tokenizers, what an annealing branches from."""
        done: set[Path] = set()
        shared = shared_folders(self.ablation, self.runs)
        jobs: list[LabJob] = []
        flops: dict[str, float] = {}
        for run in self.ablation.runs:
            works = [work for work in self.ablation.works(run, self.runs) if work.folder in shared - done]
            done |= {work.folder for work in works}
            stages = [work.stage.name for work in works if work.done is None]
            if stages:
                job = self._job(f"{SHARED}: {', '.join(stages)}", run, stages, self.folder / SHARED)
                jobs.append(job)
                flops[job.name] = run_flops(self.ablation, run, works) or 0.0
        if self.budget.flops is not None and sum(flops.values()) > self.budget.flops - self.state.flops:
            problem = f"what all runs share takes {sum(flops.values()):.3g} FLOPs, more than the budget has left"
            raise RecipeError(problem, place="--budget-flops", fix="give more")
        for ended in self._pool(1).run(jobs):
            self._say(ended.job.name, ended.end, ended.seconds, ended.why)
            if ended.end == "done":
                self.state.flops += flops[ended.job.name]
            if ended.end == "failed":
                raise CheckFailed(f"what all runs share has failed: {ended.why}", place=str(ended.job.log))

    def run_own(self, slots: int) -> None:
        """What each run has for itself."""
        waiting, shared = {}, shared_folders(self.ablation, self.runs)
        left = None if self.budget.flops is None else self.budget.flops - self.state.flops
        for run in self.ablation.runs:
            works = self.ablation.works(run, self.runs)
            if run.name in self.state.pruned or all(work.done is not None for work in works):
                continue
            flops = run_flops(self.ablation, run, works)
            if left is not None:
                if flops is None:
                    fix = "limit the hours instead: --budget-hours"
                    raise RecipeError(
                        f"the FLOPs of {run.name} are not known in advance", place="--budget-flops", fix=fix
                    )
                if flops > left:
                    self.progress.say(f"{run.name}: not run: {flops:.3g} FLOPs are more than what is left ({left:.3g})")
                    continue
                left -= flops
            names = [work.stage.name for work in works if work.folder not in shared]
            job = self._job(run.name, run, names, self.folder / run.name, self._watch(run, works))
            waiting[job.name] = (job, flops or 0.0)
        pool = self._pool(slots)
        for number, ended in enumerate(pool.run([job for job, _ in waiting.values()]), start=1):
            self.progress.stage("ablation", number, len(waiting))
            name = ended.job.name
            if ended.end == "pruned":
                self.state.pruned[name] = ended.why
            elif ended.end == "failed":
                self.state.failed[name] = ended.why
            elif ended.end == "done":
                self.state.flops += waiting[name][1]
            self._say(name, ended.end, ended.seconds, ended.why)
            self.state.write(self.folder)
            self.after()

    def _pool(self, slots: int) -> RunPool:
        before, noted = self.state.seconds, [time.monotonic()]

        def tick(seconds: float) -> None:
            self.state.seconds = before + seconds
            if time.monotonic() - noted[0] > WRITE_EVERY:  # a kill forgets no more of the budget than that
                noted[0] = time.monotonic()
                self.state.write(self.folder)

        left = None if self.budget.seconds is None else max(0.0, self.budget.seconds - before)
        return RunPool(
            slots,
            stop=self.stop,
            seconds=left,
            inherit=(self.descriptor,),
            environment=lambda slot: share_of_machine(slot, slots),
            tick=tick,
        )

    def _job(
        self,
        name: str,
        run: LabRun,
        stages: Sequence[str],
        record: Path,
        hopeless: Callable[[], str | None] = lambda: None,
    ) -> LabJob:
        record.mkdir(parents=True, exist_ok=True)
        spec = {
            "recipe": str(self.ablation.baseline_path),
            "changes": list(run.changes),
            "only": list(stages),
            "runs": str(self.runs),
            "record": str(record),
            "parent": os.getpid(),
        }
        write_json(record / "job.json", spec)
        return LabJob(name, [*self.worker, str(record / "job.json")], record / "log.txt", hopeless)

    def _watch(self, run: LabRun, works: Sequence[StageWork]) -> Callable[[], str | None]:
        """When to give the run up: it is far behind the baseline's run of the same seed at the same step."""
        prune, target = self.ablation.config.prune, self.ablation.targets[0]
        if prune is None or run.arm.name == BASELINE or run.arm.length != 1:
            return lambda: None
        base = next(one for one in self.ablation.runs if one.arm.name == BASELINE and one.seed == run.seed)
        there = {work.stage.name: work.folder for work in self.ablation.works(base, self.runs)}[target.stage]
        here = {work.stage.name: work.folder for work in works}[target.stage]
        steps: Any = run.recipe.stage(target.stage).config
        lower = self.ablation.config.measure.lower_is_better is not False

        def behind() -> str | None:
            known = metric_by_step(there, target.metric)
            for step, value in metric_by_step(here, target.metric).items():
                if step + 1 >= prune.at * steps.steps and step in known:
                    loss = (value - known[step]) * (1 if lower else -1) / abs(known[step])
                    if loss > prune.behind:
                        return f"{loss:.1%} behind the baseline at step {step + 1}"
            return None

        return behind

    def _say(self, name: str, end: str, seconds: float, why: str) -> None:
        told = f": {why.splitlines()[0]}" if why else ""
        self.progress.say(f"{name}: {end} after {format_seconds(seconds)}{told}")


def shared_folders(ablation: Ablation, runs: Path) -> set[Path]:
    """The stages that more than one run needs."""
    counted = Counter(work.folder for run in ablation.runs for work in ablation.works(run, runs))
    return {folder for folder, count in counted.items() if count > 1}


def run_flops(ablation: Ablation, run: LabRun, works: Sequence[StageWork]) -> float | None:
    """The training FLOPs of those of these stages that are left, by the planner; None where they are not known in advance."""
    left = {work.stage.name for work in works if work.done is None}
    costs = stage_costs(run.recipe, look=True, table=ablation.table)
    flops = [costs[name].flops for name in left & costs.keys()]
    known = [each for each in flops if each is not None]
    return float(sum(known)) if len(known) == len(flops) else None


def share_of_machine(slot: int, slots: int) -> dict[str, str]:
    """The environment of a slot: its share of the cores, and a GPU of its own where there are several."""
    if slots == 1:
        return {}
    share: dict[str, str] = {}
    if "OMP_NUM_THREADS" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        share["OMP_NUM_THREADS"] = str(max(1, cores // slots))
    devices = visible_gpus()
    if len(devices) > 1:
        share["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return share


def visible_gpus() -> list[str]:
    """The GPUs that processes may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
