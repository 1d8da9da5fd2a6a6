"""The one training loop: pre-training, SFT, preferences, RL and distillation all run here.

A step asks its source for batches, runs the passes over them (passes.py), clips, and updates; what else happens around the update
(QK-clip, routers' biases, measurements) is a hook (hooks.py). The source is asked for step s by number, so a run resumes exactly.
The loop saves a checkpoint every so many steps and when asked to stop; started again on the same folder it goes on from the
newest one and cuts the metrics after it. It may be asked to end with a checkpoint before the last step (saving/early_end.py).

Nothing in a step waits for the device: its numbers stay there and are read one step later, while the next one computes. Whether
a step is taken at all (finite, no spike) is decided on the device too, as a factor (guards/). On a CPU numbers are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.optim.adamw import take_step
from ingot.optim.build import make_optimizer
from ingot.optim.schedule import learning_rate_share
from ingot.train.announce import announce, describe_start
from ingot.train.config import TrainingConfig
from ingot.train.device import choose_device, choose_precision
from ingot.train.feed import Feed, Prepared
from ingot.train.freeze import freeze_others
from ingot.train.garbage import collect, no_automatic_collection
from ingot.train.gradients import clip_factor, gradient_norms, total_norm
from ingot.train.graphs import make_graphs
from ingot.train.guards.guards import Guards, Rewind
from ingot.train.guards.heartbeat import Heartbeat
from ingot.train.guards.idle import idle_guards
from ingot.train.guards.locate import locate
from ingot.train.hooks import Hook, OptimizerStep, make_hooks
from ingot.train.lora import keep_rows, rows_optimizer, seed_dropout
from ingot.train.losses.terms import LossTerm
from ingot.train.parallel.divisible import check_divisible
from ingot.train.parallel.layout import Layout, make_layout
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective, Sums
from ingot.train.prepare import prepare_model
from ingot.train.reading import Reading
from ingot.train.saving.early_end import ended_at, note_end, why_end
from ingot.train.saving.saver import Saver
from ingot.train.saving.steps import MEASURE
from ingot.train.source import Source
from ingot.train.throughput import Throughput
from ingot.train.updates import UpdateRatios
from ingot.workspace.errors import CheckFailed, Interrupted, RecipeError
from ingot.workspace.files import fsync_file
from ingot.workspace.stage import StageFolder

AfterStep = Callable[[int, dict[str, Any]], dict[str, float]]  # (step, its metrics) -> more metrics
Rate = Callable[[int], float]  # step -> share of the peak learning rate, if it is more than the schedule of the config


@dataclass
class PendingStep:
    """A step whose numbers are still on the device."""

    step: int
    data_step: int  # the step whose data it used: a later one after a rewind
    prepared: Prepared
    values: Reading
    norms: dict[str, Tensor]  # of the gradients, by parameter
    plain: dict[str, float]


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
        after_every: int = 1,
        rate: Rate | None = None,
        temperature: float = 1.0,
        fill: Callable[[Transformer], None] | None = None,
        layout: Layout | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)
        self.layout = layout or make_layout(config.mesh, self.device)  # a stage may have made it already
        check_divisible(model.config, config.mesh, sequence_length=config.sequence_length)
        self.source, self.config, self.folder = source, config, folder
        self.terms = [term for term in terms if term.coefficient != 0]
        if model.lora is None:
            freeze_others(model, config.train_only)
        self.model = prepare_model(model, config, self.layout, self.device, self.dtype, fill)
        self.optimizer = make_optimizer(self.model, rows_optimizer(config.optimizer, self.model))
        self.trained = [(name, each) for name, each in self.model.named_parameters() if each.requires_grad]
        self.objective = Objective(
            self.terms,
            len(source.names),
            temperature,
            want_logits=config.optimizer.qk_clip is not None,
            measure_noise=config.measure_noise,
        )
        self.passes = make_passes(self.model, self.objective, self.device, self.dtype, self.layout)
        graphs = make_graphs(config, self.passes, folder.progress.say)
        self.run_passes = self.passes.run if graphs is None else graphs.run
        for problem, fix in idle_guards(config.guards, model.config):
            raise RecipeError(problem, fix=fix)
        self.guards = Guards(config.guards, folder, self.layout, self.device, model.config.vocabulary_size or 0)
        self.heartbeat = Heartbeat(folder.path, config.guards.heartbeat_seconds, writes=self.guards.is_main_rank)
        self.saver = Saver(folder, config.checkpoints, self.layout)
        ratios = UpdateRatios(self.trained, self.layout, config.log_every)
        self.hooks = [ratios, *make_hooks(self.model, config, self.layout, self.guards, self.device), *hooks]
        self.stopping = False  # some rank was asked to stop
        self.data_offset = 0  # steps of data that rewinds passed over
        self.after_step, self.after_every = after_step, after_every
        self.rate = rate or (lambda step: learning_rate_share(config.schedule, step, config.steps))
        source.begin(self.passes)

    def run(self) -> dict[str, Any]:
        """Train to the end and write the stage's final checkpoint; returns the last step's metrics."""
        finished_before = self._finished()
        if finished_before is not None:
            return finished_before
        first, self.tokens = self._resume()
        self._announce(first)
        self.folder.progress.start(self.config.steps, done=first)
        if first == 0 and self.config.guards.spike == "rewind":
            self._save(0, {})  # so that there is always a checkpoint to go back to
        self._open_feed(first)
        try:
            with no_automatic_collection(), self.saver:
                last = self._train_to_end(first)
        finally:
            self.heartbeat.beat("end")
            self.feed.close()
        self.saver.finish(self.model)
        return last

    def _train_to_end(self, first: int) -> dict[str, Any]:
        while True:
            try:
                return self._train(first)
            except Rewind as rewind:
                first = self._rewind(rewind.step)

    def _rewind(self, step: int) -> int:
        """Back to the last checkpoint, and past the data from there up to that of `step`; returns the next step."""
        rewinds, offset = self.guards.rewinds, self.data_offset
        self.feed.close()
        training = self.saver.restore(self.model, self.optimizer)
        if training is None:
            raise CheckFailed("there is no intact checkpoint to rewind to", place=str(self.folder.path))
        first, self.tokens = self._go_on_from(training)
        self.guards.rewinds, self.data_offset = rewinds, offset + step + 1 - first
        self.folder.progress.say(f"rewound to step {first}; its data is now that of step {first + self.data_offset}")
        self._open_feed(first)
        return first

    def _open_feed(self, first: int) -> None:
        self.feed = Feed(self.source, self.terms, self.layout, first + self.data_offset, self.device)
        self.clock.start()

    def _train(self, first: int) -> dict[str, Any]:
        behind = 0 if self.device.type == "cpu" else 1
        pending: list[PendingStep] = []
        if first == self.config.steps or (first and self._ends_early(first)):
            return {"steps": first, **self._last_metrics()}
        last: dict[str, Any] = {}
        for step in range(first, self.config.steps):
            try:
                pending.append(self._step(step))
            except Interrupted:  # while the step's data was made, which may take long: nothing of the step is done yet
                for each in pending:
                    last = self._settle(each)
                if step > first and step % self.config.checkpoints.every:
                    self._save(step, last)
                raise
            finished = step + 1 == self.config.steps
            stop = self._stops()  # read once: a signal that comes later must not skip the save
            save = not finished and (stop or (step + 1) % self.config.checkpoints.every == 0)
            keep = 0 if save or finished or self._measures(step) else behind
            while len(pending) > keep:
                last = self._settle(pending.pop(0))
            if save or (finished and self.saver.keeps(step + 1, last)):
                with self.clock.doing("checkpoint"):
                    self._save(step + 1, last)
            if not finished and stop:
                raise Interrupted
            if save and self._ends_early(step + 1):
                if self.guards.is_main_rank and self.folder.metrics.read()[-1]["step"] < step:  # log_every left it out
                    self.folder.metrics.append(step, last)
                return {"steps": step + 1, **last}
            collect(step)
        return {"steps": self.config.steps, **last}

    def _step(self, step: int) -> PendingStep:
        data_step = step + self.data_offset
        self.heartbeat.beat("data", step=step)
        with self.clock.doing("data"):
            prepared = self.feed.get(data_step)
        self.heartbeat.beat("step")
        if self.source.temperature is not None:
            self.objective.temperature = self.source.temperature
        share = self.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * share
        seed_dropout(self.model, self.folder.seed, step, self.layout)
        denominators, tokens, learns = prepared.totals(self.layout, self.device)
        sums = self.run_passes(prepared.batches, denominators, tokens)
        self.passes.add_ranks(sums)
        keep_rows(self.model)
        gradients = {name: each.grad for name, each in self.trained if each.grad is not None}
        norms_P = gradient_norms(list(gradients.values()))
        norm = total_norm(norms_P, self.layout, [name not in self.passes.counted_elsewhere for name in gradients])
        values = {**sums.parts, **self._losses_by_source(sums), "gradient_norm": norm, "step_tokens": tokens}
        taken = self.guards.admit(sums.parts["loss"], norm)
        taken = taken * learns.to(taken.dtype)  # where nothing can be learnt nothing moves: momentum and decay would
        values |= self.guards.measured
        values |= self._update(OptimizerStep(step, len(prepared.batches), tokens, sums, norm, taken))
        if self.layout is not None:
            values["stop"] = self.layout.any(self.folder.stop.requested, self.device)
        plain = {"learning_rate": self.config.optimizer.lr * share}
        norms = dict(zip(gradients, norms_P.unbind(), strict=True))
        return PendingStep(step, data_step, prepared, Reading(values), norms, plain)

    def _update(self, step: OptimizerStep) -> dict[str, Tensor]:
        """Clip and step, with the hooks around it; returns what they measured."""
        for hook in self.hooks:
            hook.before_update(step)
        limit = self.guards.clip(self.config.optimizer.clip)
        take_step(self.optimizer, 1.0 / clip_factor(step.norm, limit).float(), 1.0 - step.taken)
        self.optimizer.zero_grad(set_to_none=True)
        for hook in self.hooks:
            hook.after_update(step)
        return step.metrics

    def _stops(self) -> bool:
        """Whether to stop now. Several ranks must agree: they stop a step after one of them was asked to."""
        return self.folder.stop.requested if self.layout is None else self.stopping

    def _ends_early(self, step: int) -> bool:
        """Whether the run was asked to end with the checkpoint of `step`, just saved. All ranks must agree."""
        why = why_end(self.folder.path)
        wanted = why is not None
        if self.layout is not None:
            wanted = bool(self.layout.any(wanted, self.device).item())
        if wanted and self.guards.is_main_rank:
            note_end(self.folder.path, step)
            self.folder.progress.say(f"the training ends early, after {step:,} steps: {why}")
        return wanted

    def _measures(self, step: int) -> bool:
        """Whether `after_step` is due after this step."""
        return self.after_step is not None and ((step + 1) % self.after_every == 0 or step + 1 == self.config.steps)

    def _losses_by_source(self, sums: Sums) -> dict[str, Tensor]:
        """The mean loss of each source's tokens; NaN for one that this step does not have."""
        if sums.source_loss is None or sums.source_weight is None:
            return {}
        losses = (sums.source_loss / sums.source_weight).unbind()
        return {f"loss/{name}": loss for name, loss in zip(self.source.names, losses, strict=True)}

    def _settle(self, pending: PendingStep) -> dict[str, Any]:
        """Read a step's numbers, check and log them, and call `after_step`."""
        read = pending.values.read()
        metrics: dict[str, Any] = {
            name: value for name, value in read.items() if value == value or not name.startswith("loss/")
        }
        step_tokens = int(metrics.pop("step_tokens"))
        self.stopping = metrics.pop("stop", 0.0) > 0
        self.tokens += step_tokens
        metrics |= pending.plain | pending.prepared.logged | {"tokens": self.tokens}
        metrics |= self.clock.settle(step_tokens)
        self.guards.observe(pending.step, metrics, data_step=pending.data_step, locate=lambda: self._locate(pending))
        self.heartbeat.beat("step", tokens_per_second=metrics["tokens_per_second"], step_seconds=metrics["seconds"])
        with self.clock.doing("validation"):
            due = self.after_step if self._measures(pending.step) else None
            measured = due(pending.step, metrics) if due is not None else {}
        metrics |= measured
        logged = pending.step % self.config.log_every == 0 or bool(measured) or pending.step + 1 == self.config.steps
        if logged and self.guards.is_main_rank:
            self.folder.metrics.append(pending.step, metrics)
        shown = {"loss": metrics["loss"], "tokens/s": metrics["tokens_per_second"]}
        self.folder.progress.advance(pending.step + 1, **shown)
        return metrics

    def _locate(self, pending: PendingStep) -> str:
        """Find where the step's numbers stopped being finite."""

        def forward() -> None:
            for batch in pending.prepared.batches:
                self.passes.score(batch)

        return locate(self.model, forward, pending.norms)

    def _announce(self, first: int) -> None:
        """Print what is trained with what, so that a term that is silently off can be seen."""
        start = describe_start(self, first)
        self.clock = Throughput(self.device, start.flops_per_token, start.peak_flops)
        if self.guards.is_main_rank:
            announce(start, self.folder)
        self.heartbeat.beat("start", step=first)

    def _save(self, step: int, last: dict[str, Any]) -> None:
        """Save the run after `step` steps, of which `last` are the newest metrics."""
        self.heartbeat.beat("checkpoint", step=step)
        if self.guards.is_main_rank and self.folder.metrics.path.exists():
            fsync_file(self.folder.metrics.path)  # a power cut must not leave a checkpoint without its record
        training = {"tokens": self.tokens, "source": self.source.state()}
        training |= {"data_offset": self.data_offset, "guards": self.guards.state()}
        training |= {hook.name: state for hook in self.hooks if (state := hook.state()) is not None}
        training |= {name: last[name] for name in (MEASURE,) if name in last}
        self.saver.save(step, self.model, self.optimizer, training)

    def _finished(self) -> dict[str, Any] | None:
        """The last step's metrics if an earlier run wrote the final checkpoint and was killed just after that."""
        steps = ended_at(self.folder.path) or self.config.steps
        if not self.saver.finished(self.model, steps):
            return None
        self.folder.progress.say("the training was finished already")
        return {"steps": steps, **self._last_metrics()}

    def _last_metrics(self) -> dict[str, Any]:
        """The logged metrics of the last step."""
        rows = self.folder.metrics.read()[-1:]
        return {name: value for row in rows for name, value in row.items() if name != "step"}

    def _resume(self) -> tuple[int, int]:
        """Load the newest intact checkpoint of an interrupted run; returns (next step, tokens seen)."""
        training = self.saver.restore(self.model, self.optimizer)
        return self._go_on_from(training or {"step": 0, "tokens": 0})

    def _go_on_from(self, training: dict[str, Any]) -> tuple[int, int]:
        """Continue from the checkpoint with this record."""
        self.source.restore(training.get("source", {}))
        self.data_offset = training.get("data_offset", 0)
        for hook in self.hooks:
            if hook.name in training:
                hook.restore(training[hook.name])
        if "guards" in training:
            self.guards.restore(training["guards"])
        if self.guards.is_main_rank:
            unreadable = self.folder.metrics.cut(training["step"])
            if unreadable:
                self.folder.progress.say(
                    f"lines of {self.folder.metrics.path.name} that cannot be read, and go: {unreadable}"
                )
        return training["step"], training["tokens"]
