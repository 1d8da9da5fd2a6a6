"""`ingot ui`: chat with a model in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ingot.cli.chat import CheckpointArgument, ServerOption, check_one
from ingot.cli.tools import DeadlineOption, ToolsOption, UnsafeOption, check_tools, choose_tools
from ingot.workspace.runs import find_checkpoint


def ui_command(
    context: typer.Context,
    checkpoint: CheckpointArgument = None,
    server: ServerOption = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; a public one needs a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar="INGOT_API_KEY",
            help="Key that the page must send; made up if a tool runs code and none is given.",
            show_default=False,
        ),
    ] = None,
    tools: ToolsOption = "calculator",
    tool_seconds: DeadlineOption = 10.0,
    unsafe: UnsafeOption = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a page for chatting with a model in the browser."""
    check_one(checkpoint, server)
    check_tools(context, tools)
    chosen = choose_tools(tools, tool_seconds, unsafe=unsafe)

    from ingot.serve.ui.serve import serve_ui

    found = None if checkpoint is None else find_checkpoint(checkpoint)
    serve_ui(found, server, host=host, port=port, key=api_key, tools=chosen, open_page=open_page, say=typer.echo)
