"""Runs to report on, written once and read by many tests; and a browser that watches the pages it opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import build

from .browsing import CHROMIUM, FLAGS, WIDE, Open
from .example_run import write_run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, with one claim that failed. Tests must not write into it."""
    return write_run(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(scope="session")
def running_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed while it learnt preferences. Tests must not write into it."""
    return write_run(tmp_path_factory.mktemp("runs") / "running", finished=9)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=60_000)
        yield running
        running.close()


@pytest.fixture(scope="session")
def report_page(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(finished_run, tmp_path_factory.mktemp("browser") / "report.html")


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a report in a window of its own; whatever goes wrong in it fails the test at its end."""
    troubles: list[str] = []
    contexts = []

    def open_report(path: Path, width: int = WIDE, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, timezone_id="UTC", offline=True
        )
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"exception: {error}"))
        context.on(
            "request",
            lambda request: (
                troubles.append(f"request: {request.url[:200]}")
                if not request.url.startswith((path.as_uri(), "data:"))
                else None
            ),
        )
        page.goto(path.as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert troubles == []
