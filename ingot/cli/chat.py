"""`ingot chat`: chat with a model in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.given import refuse_given
from ingot.cli.tools import DeadlineOption, ToolsOption, UnsafeOption, check_tools, choose_tools
from ingot.workspace.errors import IngotError
from ingot.workspace.runs import find_adapter, find_checkpoint

MODEL_HELP = (
    "A run, a stage of it (RUN/STAGE), a checkpoint, a Hugging Face folder, a GGUF file, or ORG/MODEL of the hub."
)
CheckpointArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL",
        help=MODEL_HELP,
        show_default=False,
    ),
]
ServerOption = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Use an OpenAI-compatible server instead of MODEL.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Model of the server; default: its first.")
]


def chat_command(
    context: typer.Context,
    checkpoint: CheckpointArgument = None,
    adapter: Annotated[
        Path | None,
        typer.Option(
            "--adapter", metavar="FOLDER", help="Merge this LoRA adapter into MODEL: a stage, or PEFT's folder."
        ),
    ] = None,
    server: ServerOption = None,
    model: ModelOption = None,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", metavar="KEY", envvar="INGOT_API_KEY", help="Key of the server.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Answer this message and exit.")
    ] = None,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="System prompt.")] = "",
    thinking: Annotated[bool, typer.Option("--think/--no-think", help="Let the model think before it answers.")] = True,
    tools: ToolsOption = "calculator",
    tool_seconds: DeadlineOption = 10.0,
    unsafe: UnsafeOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run tools without asking.")] = False,
    temperature: Annotated[
        float,
        typer.Option("--temperature", metavar="T", min=0.0, help="Sampling temperature; 0 takes the likeliest token."),
    ] = 0.7,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p", metavar="P", help="Sample from the likeliest tokens that hold this share of the probability."
        ),
    ] = 1.0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", metavar="N", min=1, help="Longest answer, in tokens.")
    ] = 1024,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of sampling.")] = 0,
) -> None:
    """Chat with a model in the terminal."""
    check_one(checkpoint, server)
    if server is None:
        refuse_given(context, ("model", "api_key"), "without --server: MODEL answers in this process")
    else:
        refuse_given(context, ("adapter",), "with --server: its weights are not here", "serve a merged model")
    if prompt is not None and temperature == 0:  # in a conversation /temperature may change it
        refuse_given(context, ("top_p", "seed"), "with --temperature 0, which takes the likeliest token")
    check_tools(context, tools)
    chosen = choose_tools(tools, tool_seconds, unsafe=unsafe)

    from ingot.inference.sampling import Sampling
    from ingot.serve.terminal.chat import chat
    from ingot.serve.terminal.conversation import ChatModel

    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed)
    writer: ChatModel  # of the answers
    if server is not None:
        from ingot.inference.client import Client
        from ingot.serve.terminal.server_model import ServerModel

        writer = ServerModel(Client(server, api_key), model)
    else:
        from ingot.serve.terminal.local_model import load_local_model

        assert checkpoint is not None  # one of the two is given
        writer = load_local_model(find_checkpoint(checkpoint), None if adapter is None else find_adapter(adapter))
    chat(writer, sampling, prompt=prompt, system=system, thinking=thinking, tools=chosen, ask=not yes)


def check_one(checkpoint: Path | None, server: str | None) -> None:
    """Exactly one of MODEL and --server must be given."""
    if (checkpoint is None) == (server is None):
        raise IngotError(
            "neither a checkpoint nor a server" if checkpoint is None else "both a checkpoint and a server",
            fix="give one of them: MODEL, or --server URL",
        )
