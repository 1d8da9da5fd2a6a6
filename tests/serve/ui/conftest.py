"""The chat page in front of a scripted server, in a browser that watches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from ingot.envs.tools.tool import make_tool
from ingot.inference.client import Client
from ingot.serve.ui.proxy import make_proxy
from ingot.serve.ui.serve import add_page
from tests.inference.fake_server import FakeServer, Reply, fake_server, text
from tests.report.browsing import WIDE

CALCULATOR = {"name": "calculator", "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}}
PYTHON = {"name": "python", "description": "Runs code.", "parameters": {"type": "object"}}
TOOLS = {
    "calculator": make_tool(lambda expression: {"6*7": "42"}[expression], schema=CALCULATOR, asks=False, here=True),
    "python": make_tool(lambda code: f"ran {code}", schema=PYTHON, here=True),
}


class Script:
    """What the server will say: a reply for each request, in order; the last one stays."""

    def __init__(self) -> None:
        self.replies: list[Reply] = [text("Hello.")]

    def say(self, *replies: Reply) -> None:
        self.replies = list(replies)

    def __call__(self, body: dict[str, Any]) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def running(app: Any) -> Iterator[str]:
    """An app on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="session")
def script() -> Script:
    return Script()


@pytest.fixture(scope="session")
def behind(script: Script) -> Iterator[FakeServer]:
    """The server behind the page."""
    with fake_server(script) as server:
        yield server


@pytest.fixture(scope="session")
def address(behind: FakeServer) -> Iterator[str]:
    """Where the page is."""
    app = make_proxy(Client(behind.url, "secret"))
    add_page(app, TOOLS, host="127.0.0.1", key=None)
    with running(app) as url:
        yield url


@pytest.fixture
def open_chat(browser: Any, address: str, behind: FakeServer) -> Iterator[Callable[..., Any]]:
    """Opens the page in a window of its own; whatever goes wrong in it fails the test at its end.

    `refused` are the statuses of answers that the browser may complain about on its console.
    """
    troubles: list[str] = []
    contexts = []
    behind.bodies.clear()
    behind.left.clear()

    def open_page(width: int = WIDE, scheme: str = "light", url: str = "", refused: tuple[int, ...] = ()) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()

        def complain(message: Any) -> None:
            if not any(f"status of {status}" in message.text for status in refused):
                troubles.append(f"console {message.type}: {message.text}")

        page.on("console", complain)
        page.on("pageerror", lambda error: troubles.append(f"exception: {error}"))
        here = (url or address).partition("/#")[0]
        context.on(
            "request", lambda request: troubles.append(request.url) if not request.url.startswith(here) else None
        )
        page.goto(url or address)
        page.locator("#model:not(:empty), #trouble").first.wait_for()  # the server has answered
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def say(page: Any, message: str, wait: bool = True) -> None:
    """Type a message and send it; wait for the end of the answer."""
    page.locator("#input").fill(message)
    page.keyboard.press("Enter")
    if wait:
        page.locator("#send:not([hidden])").wait_for()
