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
    """A report in a window of its own; whatever goes wrong in it is noted in `troubles`."""

    def __init__(self, browser: Any, path: Path, width: int = WIDE, scheme: str = "light") -> None:
        self.troubles: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, timezone_id="UTC", offline=True
        )
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.troubles.append(f"console {message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.context.on(
            "request",
            lambda request: (
                self.troubles.append(f"request: {request.url[:200]}")
                if not request.url.startswith((path.as_uri(), "data:"))
                else None
            ),
        )
        self.page.goto(path.as_uri())


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a report in a window of its own; whatever goes wrong in it fails the test at its end."""
    windows: list[Window] = []

    def open_report(path: Path, width: int = WIDE, scheme: str = "light") -> Any:
        windows.append(Window(browser, path, width, scheme))
        return windows[-1].page

    yield open_report
    for window in windows:
        window.context.close()
    assert [trouble for window in windows for trouble in window.troubles] == []


@pytest.fixture(scope="session")
def report_window(browser: Any, report_page: Path) -> Iterator[Window]:
    window = Window(browser, report_page)
    yield window
    window.context.close()


@pytest.fixture
def page(report_window: Window) -> Iterator[Any]:
    """The report in a window that many tests share, as it takes seconds to draw: each operates its own part of the page."""
    yield report_window.page
    assert report_window.troubles == []
