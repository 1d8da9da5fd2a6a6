"""`ingot serve`: an OpenAI-compatible server for a model."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from ingot.cli.chat import MODEL_HELP
from ingot.workspace.packages import check_installed
from ingot.workspace.runs import find_checkpoint


class Device(StrEnum):
    """Where the model is computed."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Precision(StrEnum):
    """Of the weights."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


class Bits(StrEnum):
    """Of a packed weight."""

    eight = "8"
    four = "4"
    float8 = "float8"


PACKED: dict[Bits | None, Literal[8, 4, "float8"] | None] = {
    None: None,
    Bits.eight: 8,
    Bits.four: 4,
    Bits.float8: "float8",
}


def serve_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help=MODEL_HELP,
            show_default=False,
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; a public one needs a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", envvar="INGOT_API_KEY", help="Key that clients must send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Allow this name in the Host header; may be repeated; * allows any.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the model in the API; default: that of MODEL.")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", metavar="N", min=1, help="Requests to sample at once.")] = 64,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            metavar="N",
            min=2,
            help="Longest prompt with its answer, in tokens; default and most: the model's context.",
        ),
    ] = None,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", min=0, help="Requests that may wait; refuse more.")
    ] = 256,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", min=1.0, help="Longest time for an answer.")
    ] = 600.0,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="SECONDS", min=0.0, help="On a stop, time for running answers to finish."),
    ] = 30.0,
    device: Annotated[Device, typer.Option("--device", help="Device of the model.")] = Device.auto,
    precision: Annotated[
        Precision, typer.Option("--precision", help="Of the weights; auto: bfloat16 where the device is fast with it.")
    ] = Precision.auto,
    tensor: Annotated[
        int,
        typer.Option(
            "--tensor", metavar="N", min=1, help="Divide the model over this many devices (tensor parallelism)."
        ),
    ] = 1,
    bits: Annotated[
        Bits | None,
        typer.Option("--bits", help="Pack linear weights into 8 or 4 bits, or multiply in float8.", show_default=False),
    ] = None,
    speculate: Annotated[
        int,
        typer.Option(
            "--speculate", metavar="N", min=0, help="Draft this many tokens ahead and check them in one pass; 0: off."
        ),
    ] = 0,
) -> None:
    """Serve a model with OpenAI's API: /v1/chat/completions and others."""
    check_installed(("fastapi", "uvicorn"), "serve", "ingot serve")
    from ingot.serve.openai.run import serve

    found = find_checkpoint(checkpoint)
    ended_by = serve(
        found,
        host=host,
        port=port,
        key=api_key,
        allowed_hosts=allow_host or (),
        name=name if name is not None or found == checkpoint else checkpoint.resolve().name,  # without its hash
        slots=slots,
        length=length,
        queue=queue,
        deadline=deadline,
        drain=drain,
        device=device.value,
        precision=precision.value,
        tensor=tensor,
        bits=PACKED[bits],
        speculate=speculate,
        say=typer.echo,
    )
    if ended_by == signal.SIGINT:
        raise typer.Exit(130)
