"""One line of the doctor's report, and the deadline for every check of hardware."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Check:
    """What was checked, the result (`ok`, `warn` or `fail`), what was seen, and what to do."""

    name: str
    status: str
    text: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


class TooSlow(Exception):
    """A check of hardware did not end in time."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Run `work` with a deadline: its result or its error, TooSlow if it takes longer.

    A device that hangs is left behind in a daemon thread.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  handed to the caller below, whatever it is
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TooSlow
    return results[0]
