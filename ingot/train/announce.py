"""What a run says when it starts, on the screen and in start.json: a term that is silently off, a group with the wrong decay or a
model of the wrong size can be seen before the first step.

    MFU = tokens/s · training FLOPs per token / (devices · peak FLOP/s of one)

FLOPs per token are those of model/count.py at the row length of the stage; the peak is what the maker states (hardware.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingot.model.count import count
from ingot.model.record import reported_losses
from ingot.train.hardware import device_name, peak_flops
from ingot.train.parallel.layout import AXES
from ingot.train.updates import kind_of
from ingot.workspace.files import write_json
from ingot.workspace.progress import format_number
from ingot.workspace.stage import StageFolder

if TYPE_CHECKING:
    from ingot.train.loop import Trainer

START = "start.json"


@dataclass(frozen=True)
class Start:
    """A run before its first step."""

    terms: dict[str, list[float]]  # every active loss term -> its coefficients (parts of the model may differ by layer)
    parameters: int
    active_parameters: int  # that one token uses
    trained_parameters: int
    steps: int
    first_step: int
    tokens_planned: int | None  # none where only the data knows
    flops_per_token: int
    device: str
    precision: str
    ranks: int
    mesh: dict[str, int]  # axes longer than one
    peak_flops: float | None  # of all devices together; none if it is not known
    groups: list[dict[str, Any]]  # of the optimizer

    def lines(self) -> list[str]:
        """For the screen; the first says what is trained with what."""
        terms = [f"{name} × {' or '.join(f'{each:g}' for each in found)}" for name, found in self.terms.items()]
        start = f"from step {self.first_step}" if self.first_step else "from the start"
        first = (
            f"{self.parameters:,} parameters on {self.device} in {self.precision}; loss = {', '.join(terms)}; {start}"
        )
        return [first, "; ".join(self._sizes()), *(_group_line(group) for group in self.groups)]

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
        if self.peak_flops is not None:
            whole = self.peak_flops / self.flops_per_token
            parts.append(f"MFU of {self.peak_flops / 1e12:,.0f} TFLOP/s ({whole:,.0f} tokens/s would be 100 %)")
        if self.mesh:
            parts.append("mesh " + " × ".join(f"{axis} {size}" for axis, size in self.mesh.items()))
        return parts


def describe_start(trainer: Trainer, first: int) -> Start:
    """The start of a run at step `first`."""
    model, config, layout = trainer.model, trainer.config, trainer.layout
    counted = count(model.config)
    named = {term.name: [term.coefficient] for term in trainer.terms}
    reported = [(name, value) for name, values in reported_losses(model).items() for value in values]
    trained = [(name, each.numel()) for name, each in model.named_parameters() if each.requires_grad]
    if layout is not None:  # the stages of a pipeline have different ones
        reported, trained = layout.union(reported, "pipeline"), layout.union(trained, "pipeline")
    for name, value in sorted(reported):
        named[name] = [*named.get(name, []), value]
    precision = "float8" if config.precision == "float8" else str(trainer.dtype).removeprefix("torch.")
    ranks = 1 if layout is None else layout.size(*AXES)
    peak = peak_flops(device_name(trainer.device), precision)
    multi_token = counted.multi_token
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return Start(
        terms=named,
        parameters=counted.total + multi_token.total,
        active_parameters=counted.active + multi_token.active,
        trained_parameters=sum(size for _, size in trained),
        steps=config.steps,
        first_step=first,
        tokens_planned=trainer.source.planned_tokens,
        flops_per_token=counted.training_flops_per_token(config.sequence_length),
        device=str(trainer.device),
        precision=precision,
        ranks=ranks,
        mesh={} if layout is None else {axis: layout.size(axis) for axis in AXES if layout.size(axis) > 1},
        peak_flops=None if peak is None else peak * ranks,
        groups=[_group(group, names) for group in trainer.optimizer.param_groups],
    )


def announce(start: Start, folder: StageFolder) -> None:
    """Say it and write it."""
    for line in start.lines():
        folder.progress.say(line)
    write_json(folder.path / START, vars(start))


def _group(group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    kinds = sorted({kind_of(names[id(parameter)]) for parameter in group["params"]})
    return {
        "optimizer": group["half"],
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
