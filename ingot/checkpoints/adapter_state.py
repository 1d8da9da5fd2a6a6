"""The adapters in a checkpoint of a run in progress: the state holds what trains, `lora.json` says what it belongs to.

    {"base": PATH, "scale": 2.0, "rows": [ids], "layers": {"blocks.0.mixer.output": [[start, end], …], …}}

So the checkpoint of a step is a model like others: opened, its adapters are merged into the base that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ingot.checkpoints.adapter import Adapter, Update
from ingot.checkpoints.tensors import Tensors
from ingot.model.lora import is_adapter, lora_layers, trained_rows
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import read_json

LORA = "lora.json"


def describe_adapters(model: Transformer) -> dict[str, Any]:
    """The contents of lora.json, as far as this process has the layers."""
    assert model.lora is not None
    return {
        "base": str((model.lora_base or Path()).absolute()),
        "scale": model.lora.scale,
        "rows": {name: list(model.lora.train_rows) for name in trained_rows(model)},
        "layers": {name: [list(part.span) for part in layer.low_ranks] for name, layer in lora_layers(model).items()},
    }


def join_descriptions(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One of those of all processes."""
    whole = {key: {name: value for part in parts for name, value in part[key].items()} for key in ("rows", "layers")}
    return parts[0] | whole


def read_adapter_state(folder: Path, state: Tensors) -> tuple[Path, Adapter]:
    """The path of the base, and the adapter in the state of a checkpoint."""
    place = folder / LORA
    try:
        described = dict(read_json(place))
        base, scale, layers = Path(described["base"]), float(described["scale"]), dict(described["layers"])
        rows = {str(name): tuple(map(int, numbers)) for name, numbers in dict(described["rows"]).items()}
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"the file is damaged: {error}", place=str(place), fix="use another checkpoint") from error
    if not base.exists():
        raise ArtifactError(
            f"the base of its adapters is gone: {base}",
            place=str(folder),
            fix=f"put it there, or its new path in {LORA}",
        )

    def whole(name: str) -> Tensor:
        return state.rows(name, 0, state.entries[name].rows)

    updates = {}
    for layer, spans in layers.items():
        stems = [f"{layer}.adapters.{number}" for number in range(len(spans))]
        updates[f"{layer}.weight"] = tuple(
            Update(start, end, whole(f"{stem}.lora_A"), whole(f"{stem}.lora_B"), scale)
            for stem, (start, end) in zip(stems, spans, strict=True)
        )
    new = {name: (numbers, whole(name)[list(numbers)]) for name, numbers in rows.items()}
    replaced = {name: whole(name) for name in state.entries if not is_adapter(name) and name not in new}
    return base, Adapter(updates, new, replaced)
