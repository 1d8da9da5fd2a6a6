"""Writes a checkpoint, by one process or by all ranks together.

Every rank writes its shards and hashes its own files; the first writes the rest, gathers the checksums into the manifest, and
renames the folder when all are done. A kill at any moment leaves the older checkpoints and a folder that is called partial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ingot.checkpoints.adapter_state import LORA, describe_adapters, join_descriptions
from ingot.checkpoints.checkpoint import MANIFEST, STATE, TRAINING, digests, write_description
from ingot.checkpoints.state_files import save_state
from ingot.checkpoints.stored_model import tokenizer_files
from ingot.model.transformer import Transformer
from ingot.train.saving.ranks import Ranks
from ingot.train.saving.state import run_orders
from ingot.workspace.files import write_json


@dataclass(frozen=True)
class Contents:
    """The content of a checkpoint. Live tensors in `state` give names and layout; `values`, if given, are written instead."""

    model: Transformer
    state: dict[str, Any]
    values: Mapping[str, Tensor] | None = None
    training: dict[str, Any] | None = None


def write_checkpoint(path: Path, contents: Contents, ranks: Ranks) -> None:
    """Write it to `path`; called by all ranks."""
    with ranks.folder(path) as temporary:
        orders = run_orders(contents.model, contents.state)
        save_state(contents.state, temporary / STATE, values=contents.values, orders=orders, group=ranks.group)
        ranks.once(lambda: _describe(temporary, contents))
        if contents.model.lora is not None:
            parts = ranks.each(
                lambda: describe_adapters(contents.model)
            )  # the stages of a pipeline have different layers
            ranks.once(lambda: write_json(temporary / LORA, join_descriptions(parts)))
        listed = ranks.each(lambda: digests(temporary, _own_files(temporary, ranks)))
        manifest = {name: digest for each in listed for name, digest in each.items()}
        ranks.once(lambda: write_json(temporary / MANIFEST, dict(sorted(manifest.items()))))


def _describe(folder: Path, contents: Contents) -> None:
    tokenizer = contents.model.tokenizer
    write_description(folder, contents.model.config, tokenizer_files(tokenizer) if tokenizer is not None else {})
    if contents.training is not None:
        write_json(folder / TRAINING, contents.training)


def _own_files(folder: Path, ranks: Ranks) -> list[Path]:
    """The shards that this rank wrote; for the first one, also the files that are there once."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if _writer(file) == ranks.rank]


def _writer(file: Path) -> int:
    """torch calls the shards of rank r `__r_0.distcp`."""
    return int(file.name.split("_")[2]) if file.suffix == ".distcp" else 0
