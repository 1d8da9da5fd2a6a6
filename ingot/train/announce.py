"""Prints what a run is about to train, and writes it to start.json: model, loss terms, optimizer groups, expected MFU.

A term that is silently off, a group with the wrong decay or a model of the wrong size can be seen before the first step.

    MFU = tokens/s · training FLOPs per token / (devices · peak FLOP/s of one)

FLOPs per token are those of model/count.py at the row length of the stage; the peak is what the maker states (hardware.py). The
expected MFU follows from the tokens/s that the planner expects (planner/expected.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.optim import Optimizer

from ingot.model.count import count
from ingot.model.record import reported_losses
from ingot.model.transformer import Transformer
from ingot.train.config import TrainingConfig
from ingot.train.float8 import SMALLEST, float8_layers
from ingot.train.hardware import device_name, peak_flops
from ingot.train.lora import without_adapters
from ingot.train.losses.terms import LossTerm
from ingot.train.parallel.layout import AXES, Layout
from ingot.train.source import Source
from ingot.train.updates import kind_of
from ingot.workspace.files import write_json
from ingot.workspace.progress import format_number
from ingot.workspace.stage import StageFolder

START = "start.json"


class Training(Protocol):
    """What is read of the training loop (loop.py)."""

    model: Transformer
    config: TrainingConfig
    layout: Layout | None
    terms: list[LossTerm]
    source: Source
    optimizer: Optimizer
    dtype: torch.dtype
    device: torch.device
    folder: StageFolder


@dataclass(frozen=True)
class Start:
    """A run before its first step."""

    terms: dict[str, list[float]]  # every active loss term -> its coefficients (parts of the model may differ by layer)
    parameters: int
    active_parameters: int  # that one token uses
    trained_parameters: int
    steps: int
    first_step: int
    tokens_planned: int | None  # none where only the data says
    flops_per_token: int
    device: str
    precision: str
    float8_layers: int | None  # that multiply in float8; none where it was not asked for
    ranks: int
    mesh: dict[str, int]  # axes longer than one
    peak_flops: float | None  # of all devices together; none if it is not known
    expected_mfu: float | None  # by the estimate of `ingot plan`; none if it made none
    groups: list[dict[str, Any]]  # of the optimizer
    untrained: tuple[str, ...] = ()  # parts that no loss reaches, and why
    noise_pass_tokens: int | None = None  # where a noise scale is asked for, and a step may have a single pass
    idle_guard: str | None = None  # what is to be done about spikes, and why it cannot be in so few steps

    def lines(self) -> list[str]:
        """For the screen; the first says what is trained with what."""
        terms = [f"{name} × {' or '.join(f'{each:g}' for each in found)}" for name, found in self.terms.items()]
        what = f"{self.parameters:,} parameters on {self.device} in {self.precision}"
        first = f"{what}; loss = {', '.join(terms)}; from step {self.first_step}"
        idle = [] if self.idle_guard is None else [self.idle_guard]
        more = [*self.untrained, *idle, *self._float8(), *self._noise()]
        more += [_group_line(group) for group in self.groups]
        return [first, "; ".join(self._sizes()), *more]

    def _float8(self) -> list[str]:
        if self.float8_layers is None:
            return []
        if self.float8_layers == 0:
            return [f"precision: float8 changes nothing: no layer has {SMALLEST:,} inputs and as many outputs"]
        return [f"float8 in {self.float8_layers:,} layers"]

    def _noise(self) -> list[str]:
        if self.noise_pass_tokens is None:
            return []
        size = f"a pass takes up to {self.noise_pass_tokens:,} tokens of a rank (micro_batch_tokens)"
        return [f"noise_scale comes only from steps of at least two passes; {size}"]

    def _sizes(self) -> list[str]:
        parts = []
        if self.active_parameters != self.parameters:
            parts.append(f"{self.active_parameters:,} parameters active per token")
        if self.trained_parameters != self.parameters:
            parts.append(f"{self.trained_parameters:,} parameters trained")
        parts.append(f"{self.steps:,} steps")
        if self.tokens_planned is not None:
            parts.append(f"{self.tokens_planned:,} tokens")
        parts.append(f"{format_number(self.flops_per_token / 1e6)} MFLOP per token")
        parts.append(self._mfu())
        if self.mesh:
            parts.append("mesh " + " × ".join(f"{axis} {size}" for axis, size in self.mesh.items()))
        return parts

    def _mfu(self) -> str:
        if self.peak_flops is None:
            return f"no MFU: what {self.device} can do in {self.precision} is not known"
        whole = self.peak_flops / self.flops_per_token
        against = f"of {self.peak_flops / 1e12:,.0f} TFLOP/s, where {whole:,.0f} tokens/s would be 100 %"
        if self.expected_mfu is None:
            return f"MFU {against}"
        return f"expected MFU {self.expected_mfu:.0%} ({self.expected_mfu * whole:,.0f} tokens/s) {against}"


def describe_start(trainer: Training, first: int) -> Start:
    """The start of a run at step `first`."""
    model, config, layout = trainer.model, trainer.config, trainer.layout
    counted = count(model.config)
    named = {term.name: [term.coefficient] for term in trainer.terms}
    reported = [(name, value) for name, values in reported_losses(model).items() for value in values]
    trained = [(name, each.numel()) for name, each in model.named_parameters() if each.requires_grad]
    float8 = float8_layers(model)
    if layout is not None:  # the stages of a pipeline have different ones
        reported, trained = layout.union(reported, "pipeline"), layout.union(trained, "pipeline")
        float8 = layout.union(float8, "pipeline")
    for name, value in sorted(reported):
        named[name] = [*named.get(name, []), value]
    precision = "float8" if float8 else str(trainer.dtype).removeprefix("torch.")
    ranks = 1 if layout is None else layout.size(*AXES)
    peak = peak_flops(device_name(trainer.device), precision)
    flops = counted.training_flops_per_token(config.sequence_length)
    expected = trainer.folder.expected_tokens_per_second
    multi_token, mixers = counted.multi_token, [block.mixer for block in model.config.blocks.values()]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return Start(
        terms=named,
        parameters=counted.total + multi_token.total,
        active_parameters=counted.active + multi_token.active,
        trained_parameters=sum(size for _, size in trained),
        steps=config.steps,
        first_step=first,
        tokens_planned=trainer.source.planned_tokens,
        flops_per_token=flops,
        device=str(trainer.device),
        precision=precision,
        float8_layers=len(float8) if config.precision == "float8" else None,
        ranks=ranks,
        mesh={} if layout is None else {axis: layout.size(axis) for axis in AXES if layout.size(axis) > 1},
        peak_flops=None if peak is None else peak * ranks,
        expected_mfu=None if peak is None or expected is None else expected * flops / (peak * ranks),
        untrained=(
            *sorted({mixer.untrained for mixer in mixers if mixer is not None and mixer.untrained}),
            *without_adapters(model),
        ),
        idle_guard=_idle_guard(config),
        groups=[_group(group, names) for group in trainer.optimizer.param_groups],
        noise_pass_tokens=config.micro_batch_tokens
        if config.measure_noise and trainer.source.planned_tokens is None
        else None,
    )


def announce(start: Start, folder: StageFolder) -> None:
    """Print the start of the run, and write it to start.json."""
    for line in start.lines():
        folder.progress.say(line)
    write_json(folder.path / START, vars(start))


def _idle_guard(config: TrainingConfig) -> str | None:
    guards, known = config.guards, config.guards.window // 2
    if guards.spike in ("off", "warn") or config.steps > known:
        return None
    return (
        f"guards.spike: {guards.spike} does nothing in this run: it acts once half of guards.window ({guards.window} steps) is "
        f"known, and there are {config.steps} steps; lower guards.window"
    )


def _group(group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    kinds = sorted({kind_of(names[id(parameter)]) for parameter in group["params"]})
    return {
        "optimizer": group["half"],  # of a built-in optimizer its rule, of another one its name
        "kinds": kinds,
        "tensors": len(group["params"]),
        "parameters": sum(parameter.numel() for parameter in group["params"]),
        "lr": float(group["peak_lr"]),
        "weight_decay": float(group["weight_decay"]),
    }


def _group_line(group: dict[str, Any]) -> str:
    return (
        f"{group['optimizer']} for {group['parameters']:,} parameters in {group['tensors']} tensors "
        f"({', '.join(group['kinds'])}): learning rate {group['lr']:g}, weight decay {group['weight_decay']:g}"
    )
