"""Starts the page's server: with a model of its own behind the OpenAI API, or in front of another server."""

from __future__ import annotations

import secrets
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote

from ingot.envs.tools.tool import Tool
from ingot.inference.client import Client
from ingot.serve.hosts import is_local
from ingot.serve.ui.guard import Guard
from ingot.serve.ui.proxy import make_proxy
from ingot.serve.ui.routes import add_routes
from ingot.workspace.errors import ArtifactError
from ingot.workspace.packages import check_installed

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

SLOTS = 8  # answers at once: a page has one user, perhaps with several tabs
QUEUE = 32  # requests that may wait for one of them
DRAIN = 5.0  # seconds that a running answer gets when the server is stopped
LONGEST = 16_384  # tokens of a conversation


def serve_ui(
    checkpoint: Path | None,
    server: str | None,
    *,
    host: str,
    port: int,
    key: str | None,
    tools: Mapping[str, Tool],
    open_page: bool,
    say: Callable[[str], None],
) -> None:
    """Serve the page until Ctrl-C. `key` is the page's, and with `server` also that server's."""
    check_installed(("fastapi", "uvicorn"), "serve", "ingot ui")
    from ingot.serve.openai.run import address, check_bind, listen

    check_bind(host, key)
    asked = page_key(None if server is not None and is_local(host) else key, tools)  # not the other server's key
    make = _with_model(checkpoint) if checkpoint is not None else _with_server(Client(server or "", key))
    with closing(listen(host, port)) as socket, make as served:
        add_page(served.api, tools, host=host, key=asked, tools_on=served.calls_tools)
        page = address(socket) + (f"/#key={quote(asked, safe='')}" if asked else "/")
        say(f"chat at {page} (Ctrl-C ends it)")
        if open_page:
            webbrowser.open(page)
        try:
            served.server.run(sockets=[socket])
        except KeyboardInterrupt:
            return  # how uvicorn passes Ctrl-C on, after it has ended in good order


def page_key(key: str | None, tools: Mapping[str, Tool]) -> str | None:
    """The key that the page must send: with a tool that asks before it runs, such as Python, there is always one.

    On loopback every user and every program of this machine can reach the page's server, and could run code as this user.
    """
    return key or (secrets.token_urlsafe(16) if any(tool.asks for tool in tools.values()) else None)


def add_page(api: FastAPI, tools: Mapping[str, Tool], *, host: str, key: str | None, tools_on: bool = True) -> None:
    """Put the page, its tools and its guard around an OpenAI API."""
    add_routes(api, tools, tools_on)
    api.add_middleware(Guard, host=host, key=key)


class Served(NamedTuple):
    """An API, what runs it, and whether its model was made to call tools, which confuse one that was not."""

    api: FastAPI
    server: uvicorn.Server
    calls_tools: bool


@contextmanager
def _with_model(path: Path) -> Iterator[Served]:
    """The API of a model in this process. Its key is the guard's matter."""
    from ingot.checkpoints.checkpoint import load_model
    from ingot.inference.engine import Engine
    from ingot.inference.runner import EngineRunner
    from ingot.serve.openai.run import Server
    from ingot.serve.openai.service import Service
    from ingot.train.device import choose_device, choose_precision

    device = choose_device("auto")
    model = load_model(path, device=device, dtype=choose_precision("auto", device)).eval()
    if model.tokenizer is None:
        raise ArtifactError("the model has no tokenizer", place=str(path), fix="use a checkpoint that Ingot wrote")
    engine = Engine(model, slots=SLOTS, length=min(model.config.context, LONGEST))
    with EngineRunner(engine, limit=SLOTS + QUEUE) as runner:
        service = Service(runner, model.tokenizer, path.resolve().name.removesuffix(".gguf"))
        server = Server(service, drain=DRAIN)
        app = cast("FastAPI", server.config.app)
        yield Served(app, server, service.chat is not None and service.chat.syntax.calls)


@contextmanager
def _with_server(client: Client) -> Iterator[Served]:
    """The API of another server, which must be there."""
    import uvicorn

    from ingot.serve.openai.run import make_config

    client.models()
    app = make_proxy(client)
    yield Served(app, uvicorn.Server(make_config(app, int(DRAIN))), calls_tools=True)
