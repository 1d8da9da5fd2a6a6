"""The process of one run of a laboratory: stages of a recipe, in a run folder whose lock the laboratory holds.

    {"recipe": PATH, "changes": ["a.b=1"], "only": ["pretrain"], "runs": PATH, "record": PATH, "parent": PID}

It stops at its next step when it is told to (SIGTERM), or when the laboratory is gone: then nobody would read what it does. It
holds the run folder's lock until it ends, so that the next laboratory waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ingot.lab.processes import FAREWELL, INTERRUPTED
from ingot.recipe.flow import ExpectedSpeed, run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.stages import STAGES, Table
from ingot.workspace.errors import IngotError, Interrupted
from ingot.workspace.interrupt import StopSignal, stop_on_signals
from ingot.workspace.progress import PlainProgress

PARENT_POLL = 0.5


def work(
    spec: Mapping[str, Any],
    *,
    table: Table = STAGES,
    finish: Callable[[Path], Path] | None = None,
    expected: ExpectedSpeed | None = None,
) -> int:
    """Run the stages that `spec` names; the exit code. `finish` writes the report of the run's folder."""
    stop = StopSignal()
    threading.Thread(target=_stop_with_parent, args=(int(spec["parent"]), stop), daemon=True).start()
    try:
        with stop_on_signals(stop):
            run_recipe(
                load_recipe(spec["recipe"], spec["changes"], table),
                Path(spec["runs"]),
                only=spec["only"],
                progress=PlainProgress(),
                stop=stop,
                finish=finish,
                table=table,
                expected=expected,
                record=Path(spec["record"]),
                held=True,
            )
    except Interrupted:
        return INTERRUPTED
    except (IngotError, RuntimeError) as error:  # RuntimeError: what torch raises, also when memory is full
        sys.stdout.flush()
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return 2
    return 0


def _stop_with_parent(parent: int, stop: StopSignal) -> None:
    """Ask for a stop once the laboratory is gone; end at once if the run does not come to its next step."""
    ended = threading.Event()
    while os.getppid() == parent:
        ended.wait(PARENT_POLL)
    stop.request()
    ended.wait(FAREWELL)
    os._exit(INTERRUPTED)
