"""Worker processes: a script without a main guard, and a main process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.making.processes import alive, wait_until

REPOSITORY = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys, time
from pathlib import Path
from ingot.data.engine.local_pool import LocalPool
from ingot.data.engine.work import Work
from tests.data.engine.tasks import Text, upper
print("main", flush=True)
with LocalPool(2) as pool:
    done = Work(Path(sys.argv[1]), pool=pool).run("upper", upper, [Text(f"{n}", "x") for n in range(4)])
    print(*sorted({task.report["process"] for task in done}), flush=True)
    time.sleep(60)
"""


def test_a_script_without_a_main_guard_and_a_killed_one(tmp_path: Path) -> None:
    """The script's top level runs once although workers start; killed with SIGKILL it leaves no worker behind."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "work")], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "main\n"
        workers = [int(word) for word in process.stdout.readline().split()]
        assert workers
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, workers)), otherwise="workers outlived the main process")
