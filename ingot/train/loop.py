"""The one training loop: pre-training, SFT, preferences, RL and distillation all run here.

A step asks its source for batches, sums the loss terms over them (each over its global denominator, see terms.py), clips,
and updates. Losses that parts of the model report (record.py) are sums over tokens and are divided by the tokens of the
step; after the update the routers' selection biases move with the loads of the step. The source is asked for step s by
number: whoever makes data from (seed, step) alone, as all stages here do, resumes exactly. The loop saves a checkpoint every
so many steps and when asked to stop; started again on the same folder it goes on from the newest one, and metrics after it
are cut, so that the record reads as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ingot.model.checkpoint import load_state, save_checkpoint, verify_checkpoint
from ingot.model.feed_forward.mixture import update_biases
from ingot.model.feed_forward.statistics import router_metrics
from ingot.model.record import Record, reported_losses
from ingot.model.transformer import Transformer
from ingot.optim.adamw import make_adamw
from ingot.optim.schedule import learning_rate_share
from ingot.tokens.batch import Batch
from ingot.train.config import TrainingConfig
from ingot.train.device import choose_device, choose_precision, precision_context
from ingot.train.freeze import freeze_others
from ingot.train.logprobs import score
from ingot.train.resume import latest_checkpoint, prune_checkpoints, restore, training_state
from ingot.train.terms import LossTerm
from ingot.workspace.errors import ArtifactError, CheckFailed, Interrupted
from ingot.workspace.files import fsync_file
from ingot.workspace.stage import StageFolder


class Source(Protocol):
    """Where a step's data comes from."""

    def batches(self, step: int) -> tuple[Sequence[Batch], dict[str, float]]:
        """The micro-batches of step `step`, and numbers about them worth logging."""


AfterStep = Callable[[int, dict[str, Any]], dict[str, float]]  # (step, its metrics) -> more metrics


class Trainer:
    """Runs `config.steps` steps of `terms` over `source` in a stage's folder."""

    def __init__(
        self,
        model: Transformer,
        terms: Sequence[LossTerm],
        source: Source,
        config: TrainingConfig,
        folder: StageFolder,
        *,
        after_step: AfterStep | None = None,
        temperature: float = 1.0,
    ) -> None:
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)
        self.model, self.source, self.config, self.folder = model.to(self.device), source, config, folder
        self.terms = [term for term in terms if term.coefficient != 0]
        freeze_others(self.model, config.train_only)
        self.wants = {want for term in self.terms for want in term.wants}
        self.optimizer = make_adamw(self.model, config.optimizer)
        self.after_step, self.temperature = after_step, temperature

    def run(self) -> dict[str, Any]:
        """Train to the end and write the stage's final checkpoint; returns the last step's metrics."""
        finished_before = self._finished()
        if finished_before is not None:
            return {"steps": self.config.steps, **finished_before}
        first, tokens = self._resume()
        self._announce(first)
        progress, metrics, last = self.folder.progress, self.folder.metrics, dict[str, Any]()
        progress.start(self.config.steps, done=first)
        for step in range(first, self.config.steps):
            began = time.monotonic()
            last, step_tokens = self._step(step)
            tokens += step_tokens
            seconds = time.monotonic() - began
            last |= {"tokens": tokens, "tokens_per_second": step_tokens / seconds, "seconds": seconds}
            measured = self.after_step(step, last) if self.after_step is not None else {}
            last |= measured
            finished = step + 1 == self.config.steps
            if step % self.config.log_every == 0 or measured or finished:
                metrics.append(step, last)
            shown = {"loss": last["loss"], "tokens/s": last["tokens_per_second"]}
            progress.advance(step + 1, **shown)
            stop = self.folder.stop.requested  # read once: a signal that comes later must not skip the save
            if not finished and (stop or (step + 1) % self.config.checkpoint_every == 0):
                self._save(step + 1, tokens)
            if not finished and stop:
                raise Interrupted
        save_checkpoint(self.folder.artifact("checkpoint"), self.model)
        prune_checkpoints(self.folder.path, keep=0)
        return {"steps": self.config.steps, **last}

    def _step(self, step: int) -> tuple[dict[str, Any], int]:
        batches, logged = self.source.batches(step)
        batches = [batch.to(self.device) for batch in batches]
        denominators = {}
        for term in self.terms:
            self._check_streams(step, term, batches)
            total = torch.stack([term.denominator(batch.streams) for batch in batches]).sum()
            if not total > 0:
                raise CheckFailed(
                    f"step {step} has nothing to learn from: the denominator of the loss term {term.name!r} is {float(total)}",
                    fix="check the loss mask of the data",
                )
            denominators[term.name] = total
        share = learning_rate_share(self.config.schedule, step, self.config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optimizer.lr * share * group["lr_share"]
        tokens, so_far, sums = sum(batch.token_count for batch in batches), Record(), dict[str, Tensor]()
        for batch in batches:
            for name, part in self._pass(batch, denominators, tokens, so_far).items():
                sums[name] = sums[name] + part if name in sums else part
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip)
        self._check_finite(step, sums["loss"], norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        result = {name: float(value) for name, value in sums.items()}
        result |= {"learning_rate": self.config.optimizer.lr * share, "gradient_norm": float(norm), **logged}
        if so_far.loads:
            so_far.sum_over_ranks()
            update_biases(self.model, so_far.loads)
            result |= router_metrics(so_far.loads)
        return result, tokens

    def _pass(self, batch: Batch, denominators: Mapping[str, Tensor], tokens: int, so_far: Record) -> dict[str, Tensor]:
        """Forward and backward over one micro-batch; returns its part of the step's loss and of all that is logged.

        `tokens` are those of the step; `so_far` holds the loads of its earlier passes and gets those of this one.
        """
        record = Record(before=so_far.loads)
        with precision_context(self.device, self.dtype):
            scored = score(self.model, batch, self.temperature, record, self.wants)
        parts: dict[str, Tensor] = {}
        loss = torch.zeros((), device=self.device)
        for term in self.terms:
            numerator, details = term.numerator(scored)
            value = numerator / denominators[term.name]
            loss = loss + term.coefficient * value
            parts |= {name: detail / denominators[term.name] for name, detail in details.items()}
            parts[term.name] = value.detach()
        for name, total in record.losses.items():
            loss = loss + total / tokens
            parts[name] = total.detach() / tokens
        loss.backward()
        so_far.add_loads(record)
        return {**parts, "loss": loss.detach()}

    def _check_streams(self, step: int, term: LossTerm, batches: Sequence[Batch]) -> None:
        missing = {name for batch in batches for name in term.needs if name not in batch.streams}
        if missing:
            raise CheckFailed(
                f"step {step}: the loss term {term.name!r} reads {', '.join(sorted(missing))}, which a batch does not have",
                fix=f"stamp the sequences with the streams {', '.join(term.needs)}",
            )

    def _check_finite(self, step: int, loss: Tensor, norm: Tensor) -> None:
        if torch.isfinite(loss) and torch.isfinite(norm):
            return
        named = self.model.named_parameters()
        bad = [name for name, p in named if p.grad is not None and not torch.isfinite(p.grad).all()]
        raise CheckFailed(
            f"step {step}: loss {float(loss)}, gradient norm {float(norm)}; first parameters with a bad gradient: {bad[:3]}",
            place=str(self.folder.path),
            fix="lower the learning rate or look at the step's data; the last checkpoint is intact",
        )

    def _announce(self, first: int) -> None:
        """Say what is trained with what, so that a term that is silently off can be seen to be off."""
        named = [(term.name, [term.coefficient]) for term in self.terms]
        named += [(name, sorted(values)) for name, values in reported_losses(self.model).items()]
        terms = ", ".join(f"{name} × {' or '.join(f'{value:g}' for value in values)}" for name, values in named)
        count = sum(parameter.numel() for parameter in self.model.parameters())
        precision = str(self.dtype).removeprefix("torch.")
        start = f"from step {first}" if first else "from the start"
        self.folder.progress.say(f"{count:,} parameters on {self.device} in {precision}; loss = {terms}; {start}")

    def _save(self, step: int, tokens: int) -> None:
        if self.folder.metrics.path.exists():
            fsync_file(self.folder.metrics.path)  # a power cut must not leave a checkpoint without its record
        state = training_state(self.model, self.optimizer)
        path = self.folder.path / "steps" / f"step-{step:07d}"
        save_checkpoint(path, self.model, optimizer_state=state, training={"step": step, "tokens": tokens})
        prune_checkpoints(self.folder.path, keep=self.config.keep_checkpoints)

    def _finished(self) -> dict[str, Any] | None:
        """The last step's metrics if an earlier run wrote the final checkpoint and was killed just after that."""
        path, rows = self.folder.artifact("checkpoint"), self.folder.metrics.read()
        if not path.exists() or not rows or rows[-1]["step"] + 1 != self.config.steps:
            return None
        try:
            verify_checkpoint(path)
        except ArtifactError as error:
            self.folder.progress.say(f"the final checkpoint is damaged and made again: {error}")
            return None
        load_state({"model": self.model.state_dict()}, path)
        prune_checkpoints(self.folder.path, keep=0)
        self.folder.progress.say("the training was finished already")
        return {name: value for name, value in rows[-1].items() if name != "step"}

    def _resume(self) -> tuple[int, int]:
        """Load the newest intact checkpoint of an interrupted run; returns (next step, tokens seen)."""
        found = latest_checkpoint(self.folder.path, self.folder.progress)
        training = restore(found, self.model, self.optimizer) if found is not None else {"step": 0, "tokens": 0}
        self.folder.metrics.cut(training["step"])
        return training["step"], training["tokens"]
