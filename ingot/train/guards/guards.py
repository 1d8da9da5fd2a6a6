"""The guards of a run: decide on the device whether a step is taken, then check its numbers against the rules.

    taken = admit(loss, norm)     before the update, without waiting: 1 or 0 as a tensor (spikes.py)
    limit = clip(base)            of the gradient norm
    observe(step, metrics, …)     when the numbers have been read: the rules of rules.py, and what they ask for

What decides about steps (windows, counters, rewinds) is part of the checkpoint, so that a resumed run decides the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ingot.model.record import RouterLoad
from ingot.train.guards.config import GuardsConfig
from ingot.train.guards.experts import IdleExperts
from ingot.train.guards.history import History
from ingot.train.guards.rules import RULES, Rule, StepView
from ingot.train.guards.skip import undone_if_skipped
from ingot.train.guards.spikes import Spikes
from ingot.train.parallel.layout import Layout, world_size
from ingot.train.saving.steps import Steps
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder

EVENTS = "events.jsonl"
DONE = {
    "warn": "the run goes on",
    "skip": "the step was skipped",
    "clip": "gradients are clipped harder for a while",
    "rewind": "back to the last checkpoint, past the data since",
    "stop": "the run stops",
}


class Rewind(Exception):
    """The run is to go back to its last checkpoint and pass over the data up to and with that of `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"rewind from step {step}")
        self.step = step


class Guards:
    """Watches one run."""

    def __init__(
        self, config: GuardsConfig, folder: StageFolder, layout: Layout | None, device: torch.device, vocabulary: int
    ) -> None:
        self.config, self.folder, self.vocabulary = config, folder, vocabulary
        self.is_main_rank = layout is None or layout.first
        self.spikes = Spikes(config, device)
        self.experts = IdleExperts()
        self.history = History(config.window)
        self.rewinds = 0
        self.reported: dict[str, int] = {}  # by rule: the last step at which it reported
        self.measured: dict[str, Tensor] = {}  # of the step that `admit` was last asked about

    def admit(self, loss: Tensor, norm: Tensor) -> Tensor:
        """1 if the step is to be taken, 0 to change nothing; stays on the device."""
        taken, self.measured = self.spikes.admit(loss, norm)
        return taken

    def clip(self, limit: float) -> float | Tensor:
        """The limit of this step's gradient norm."""
        return self.spikes.clip(limit)

    def idle_experts(self, loads: Mapping[int, RouterLoad]) -> dict[str, Tensor]:
        """Count the experts that this step left out; for the log."""
        return {"router/idle_steps": self.experts.count(loads)}

    def undoing_skipped(self, model: nn.Module, taken: Tensor) -> AbstractContextManager[None]:
        """A context in which routers are updated; if the step is skipped, they are left as they were."""
        return undone_if_skipped(model, taken) if self.config.spike == "skip" else nullcontext()

    def observe(
        self, step: int, metrics: Mapping[str, float], *, data_step: int, locate: Callable[[], str] = str
    ) -> None:
        """Judge a step by its numbers. `locate` finds the layer where something is not finite."""
        self.history.add(metrics)
        sight = StepView(metrics, self.history, self.config, self.vocabulary, world_size())
        for rule in RULES:
            seen = rule.condition(sight)
            if seen is None or (self._action(rule) == "warn" and self._reported_lately(rule, step)):
                continue
            self.reported[rule.name] = step
            if rule.action == "stop":
                seen = f"{seen}; {locate()}"
            self._act(rule, step, data_step, seen)

    def _action(self, rule: Rule) -> str:
        return self.config.spike if rule.action == "spike" else rule.action

    def _reported_lately(self, rule: Rule, step: int) -> bool:
        return rule.name in self.reported and step - self.reported[rule.name] < self.config.window

    def _act(self, rule: Rule, step: int, data_step: int, seen: str) -> None:
        action = self._action(rule)
        too_often = action == "rewind" and self.rewinds >= self.config.rewinds
        self.report(rule.name, rule.reason, "stop" if too_often else action, step, data_step, seen)
        if action == "stop":
            raise CheckFailed(
                f"step {step} (data of step {data_step}): {seen}",
                place=str(self.folder.path),
                fix=f"lower the learning rate or look at the step's data; {self._left()}",
            )
        if too_often:
            raise CheckFailed(
                f"step {step}: {seen}; {self.rewinds} rewinds did not help",
                place=str(self.folder.path),
                fix=f"lower the learning rate, clip harder, or look at the data; {self._left()}",
            )
        if action == "rewind":
            self.rewinds += 1
            raise Rewind(step)

    def _left(self) -> str:
        """A sentence about what a stop leaves: a run saves only steps that the guards have seen."""
        there = Steps(self.folder.path).there()
        return "the last checkpoint is intact" if there else "no checkpoint is complete yet, the run begins again"

    def report(self, rule: str, reason: str, action: str, step: int, data_step: int, seen: str) -> None:
        """A line on the screen and one in events.jsonl."""
        if not self.is_main_rank:
            return
        self.folder.progress.say(f"step {step}: {rule}: {seen}; {DONE[action]}")
        event = {
            "time": time.time(),
            "step": step,
            "data_step": data_step,
            "rule": rule,
            "reason": reason,
            "action": action,
            "seen": seen,
        }
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with (self.folder.path / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as plain JSON."""
        return {"spikes": self.spikes.state(), "experts": self.experts.state(), "rewinds": self.rewinds}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.spikes.restore(state["spikes"])
        self.experts.restore(state["experts"])
        self.rewinds = state["rewinds"]
