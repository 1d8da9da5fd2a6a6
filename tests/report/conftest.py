"""Runs to report on, written once and read by many tests; and a browser that watches the pages it opens.

`real_run` was written by real stages. `finished_run` and `running_run` are written by hand, for what a real run does not show on
demand: claims that fail, a spike and a NaN, a stage that was killed; test_example.py holds them to the format of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import build
from tests.once import once

from .browsing import WIDE, Open
from .example_run import write_run
from .real_run import run_stages


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the small quickstart. Tests must not write into it."""
    return once(tmp_path_factory, "real_run", run_stages)


@pytest.fixture(scope="session")
def real_page(real_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(real_run, tmp_path_factory.mktemp("real") / "report.html")


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, with one claim that failed. Tests must not write into it."""
    return write_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(scope="session")
def running_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed while it learnt preferences. Tests must not write into it."""
    return write_run(tmp_path_factory.mktemp("runs") / "running", finished=9)


@pytest.fixture(scope="session")
def report_page(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(finished_run, tmp_path_factory.mktemp("browser") / "report.html")


class Window:
    """Reports in a window; whatever goes wrong in it is noted in `troubles`."""

    def __init__(self, browser: Any) -> None:
        self.troubles: list[str] = []
        self.context = browser.new_context(timezone_id="UTC", offline=True)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.troubles.append(f"console {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.context.on("request", self._note_request)
        self._shown = ""

    def show(self, path: Path, width: int = WIDE, scheme: str = "light") -> Window:
        """As a browser opens it that never saw it: another width and scheme, nothing remembered, the mouse elsewhere."""
        if self._shown:
            self.page.evaluate("localStorage.clear()")
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(media="screen", color_scheme=scheme)
        self._shown = path.as_uri()
        self.page.goto(self._shown)
        return self

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self._shown, "data:")):
            self.troubles.append(f"request: {request.url[:200]}")


@pytest.fixture(scope="session")
def usual_window(browser: Any) -> Iterator[Window]:
    """One that tests have after each other: a new one takes the browser longer than to draw the next report in it."""
    window = Window(browser)
    yield window
    window.context.close()


@pytest.fixture
def open_page(usual_window: Window) -> Iterator[Open]:
    """Opens a report; whatever goes wrong in it fails the test at its end."""
    usual_window.troubles.clear()

    def open_report(path: Path, width: int = WIDE, scheme: str = "light") -> Any:
        return usual_window.show(path, width, scheme).page

    yield open_report
    assert usual_window.troubles == []


@pytest.fixture(scope="session")
def report_window(browser: Any, report_page: Path) -> Iterator[Window]:
    window = Window(browser).show(report_page)
    yield window
    window.context.close()


@pytest.fixture
def page(report_window: Window) -> Iterator[Any]:
    """The report in a window that many tests share, as it takes seconds to draw: each operates its own part of the page."""
    yield report_window.page
    assert report_window.troubles == []
