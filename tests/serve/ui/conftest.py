"""The chat page in front of a scripted server, in a browser that watches it."""

from __future__ import annotations

import threading
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
from tests.making.processes import wait_until
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
    wait_until(lambda: server.started)
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


class Tab:
    """Shows the page; whatever goes wrong in it is noted in `troubles`."""

    def __init__(self, browser: Any) -> None:
        self.troubles: list[str] = []
        self.refused: tuple[int, ...] = ()
        self.context = browser.new_context()
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.context.on("request", self._note_request)
        self._here = ""

    def show(self, url: str, width: int, scheme: str, refused: tuple[int, ...]) -> Any:
        """As a browser opens it that never saw it: nothing is remembered, nothing from before goes on."""
        if self._here:
            self.page.evaluate("window.stop()")
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
            self.page.goto("about:blank")
        self.troubles.clear()
        self.refused, self._here = refused, url.partition("/#")[0]
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": width, "height": 860})
        self.page.emulate_media(color_scheme=scheme)
        self.page.goto(url)
        self.page.locator("#model:not(:empty), #trouble").first.wait_for()  # the server has answered
        return self.page

    def _note_message(self, message: Any) -> None:
        if not any(f"status of {status}" in message.text for status in self.refused):
            self.troubles.append(f"console {message.type}: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(self._here):
            self.troubles.append(request.url)


@pytest.fixture(scope="session")
def tab(browser: Any) -> Iterator[Tab]:
    """One that tests have after each other: a new one takes the browser longer than the page in it."""
    tab = Tab(browser)
    yield tab
    tab.context.close()


@pytest.fixture
def open_chat(tab: Tab, address: str, behind: FakeServer) -> Iterator[Callable[..., Any]]:
    """Opens the page; whatever goes wrong in it fails the test at its end.

    `refused` are the statuses of answers that the browser may complain about on its console.
    """
    behind.bodies.clear()
    behind.left.clear()

    def open_page(width: int = WIDE, scheme: str = "light", url: str = "", refused: tuple[int, ...] = ()) -> Any:
        return tab.show(url or address, width, scheme, refused)

    yield open_page
    for other in tab.context.pages[1:]:
        other.close()
    assert tab.troubles == []


def say(page: Any, message: str, wait: bool = True) -> None:
    """Type a message and send it; wait for the end of the answer."""
    page.locator("#input").fill(message)
    page.keyboard.press("Enter")
    if wait:
        page.locator("#send:not([hidden])").wait_for()
