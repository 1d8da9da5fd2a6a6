"""`ingot import` and `ingot export`: convert models to and from other formats."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.cli.chat import MODEL_HELP
from ingot.cli.given import refuse_given
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.runs import find_adapter, find_checkpoint

if TYPE_CHECKING:
    import torch

    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import Progress

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class GgufType(StrEnum):
    """What the matrices of a GGUF file may be stored as."""

    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    q8_0 = "q8_0"
    q4_0 = "q4_0"


class Dtype(StrEnum):
    """What weights may be converted to."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help=MODEL_HELP,
        show_default=False,
    ),
]
AdapterOption = Annotated[
    Path | None,
    typer.Option(
        "--adapter", metavar="FOLDER", help="Merge this LoRA adapter into the weights: a stage, or PEFT's folder."
    ),
]
OutArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write.", show_default=False)]
DtypeOption = Annotated[Dtype | None, typer.Option("--dtype", help="Convert the weights; default: keep their dtype.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the folder if it exists.")]


def import_command(
    source: SourceArgument,
    out: OutArgument,
    adapter: AdapterOption = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family", metavar="FILE.py:NAME", help="Read a model type that Ingot does not know by this family."
        ),
    ] = None,
    dtype: DtypeOption = None,
    force: ForceOption = False,
) -> None:
    """Convert a Hugging Face folder or GGUF file to an Ingot checkpoint."""
    from ingot.checkpoints.convert import import_model

    def work(progress: Progress, stop: StopSignal) -> Path:
        return import_model(
            find_checkpoint(source),
            out,
            adapter=None if adapter is None else find_adapter(adapter),
            family=family,
            dtype=chosen_dtype(dtype),
            replace=force,
            progress=progress,
            stop=stop,
        )

    convert(work)
    show_written("checkpoint", out)


def export_command(
    context: typer.Context,
    source: SourceArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder or .gguf file to write.", show_default=False)],
    adapter: AdapterOption = None,
    model_type: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="MODEL_TYPE", help="Hugging Face model type, or FILE.py:NAME; default: the first that fits."
        ),
    ] = None,
    dtype: DtypeOption = None,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", metavar="SIZE", help="Largest weight file, such as 500MB.")
    ] = "5GB",
    type: Annotated[
        GgufType | None, typer.Option("--type", help="How a GGUF file stores matrices; default: as they are.")
    ] = None,
    ollama: Annotated[
        bool, typer.Option("--ollama", help="Write a folder with a GGUF file and a Modelfile for Ollama.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what exists under this name.")] = False,
) -> None:
    """Write a model as a Hugging Face folder for transformers, or as a GGUF file for llama.cpp."""
    from ingot.checkpoints.convert import export_gguf, export_model, export_ollama

    def write_file(progress: Progress, stop: StopSignal) -> Path:
        return (export_ollama if ollama else export_gguf)(
            find_checkpoint(source),
            out,
            type=type,
            adapter=None if adapter is None else find_adapter(adapter),
            replace=force,
            progress=progress,
            stop=stop,
        )

    if ollama or out.suffix.lower() == ".gguf":
        refuse_given(context, ("dtype",), "where a GGUF file is written", "use --type: f32, f16, bf16 …")
        refuse_given(context, ("model_type", "max_shard_size"), "where a GGUF file is written")
        convert(write_file)
        if ollama:
            typer.echo(f"next:\n  ollama create {shlex.quote(out.name)} -f {shlex.quote(str(out / 'Modelfile'))}")
        else:
            show_written("GGUF file", out)
        return
    refuse_given(
        context, ("type",), "where a folder is written", "name a file, such as model.gguf; or use --ollama, or --dtype"
    )
    size = parse_size(max_shard_size)

    def work(progress: Progress, stop: StopSignal) -> Path:
        return export_model(
            find_checkpoint(source),
            out,
            adapter=None if adapter is None else find_adapter(adapter),
            model_type=model_type,
            dtype=chosen_dtype(dtype),
            max_shard_bytes=size,
            replace=force,
            progress=progress,
            stop=stop,
        )

    convert(work)
    show_written("Hugging Face folder", out)


def parse_size(text: str) -> int:
    """Bytes from `500MB`: a number and a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    size = 0 if match is None else int(float(match[1]) * UNITS[match[2]])
    if size <= 0:
        raise ArtifactError(f"{text!r} is not a size", place="--max-shard-size", fix="write it like 5GB or 500MB")
    return size


def chosen_dtype(name: Dtype | None) -> torch.dtype | None:
    import torch

    return None if name is None else getattr(torch, name)


def convert(work: Callable[[Progress, StopSignal], Path]) -> None:
    """Convert with live progress. A stop leaves nothing behind."""
    from ingot.cli.stop import note_signals
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import make_progress

    stop, received = StopSignal(), list[int]()
    try:
        with make_progress() as progress, note_signals(stop, received):
            work(progress, stop)
    except (Interrupted, KeyboardInterrupt):
        typer.echo("stopped; nothing was written", err=True)
        raise typer.Exit(128 + (received[-1] if received else signal.SIGINT)) from None


def show_written(what: str, folder: Path) -> None:
    """Say what was written, and what can be done with it."""
    from ingot.workspace.files import folder_bytes

    size = folder_bytes(folder) if folder.is_dir() else folder.stat().st_size
    typer.echo(f"{what}: {folder} ({size / 1e6:,.1f} MB)")
    typer.echo(f"next:\n  ingot chat {shlex.quote(str(folder))}")
