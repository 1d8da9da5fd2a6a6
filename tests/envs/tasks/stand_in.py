"""Stands in for the Python that has verifiers: speaks the lines of `_verifiers_worker.py`, with a fault for each task.

It is started as that Python would be, and ignores the script that it is given.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

FAULTS = ("none", "raises", "dies", "hangs", "deaf", "unscored")
REWARD = {
    "agent": "a",
    "reward": 0.75,
    "rewards": {"correct": [1.0, 0.5], "brief": [0.25, 1.0]},
    "metrics": {"words": 3.0},
}


def say(line: dict[str, Any]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def question(number: int) -> list[dict[str, Any]]:
    """The prompt of a task."""
    return [{"role": "user", "content": f"Question {number}?"}]


def main() -> None:
    """Load, then play until the pipe closes."""
    faults: dict[int, str] = {}
    deaf = False
    for text in sys.stdin:
        line = json.loads(text)
        talk = line["talk"]
        if "load" in line:
            options = line["load"]["options"]
            if "wrong" in options:
                say({"talk": talk, "end": {"error": "its options do not fit: wrong", "fix": "write them otherwise"}})
                continue
            if "slow" in options:
                time.sleep(options["slow"])
            if "quits" in options:
                sys.stderr.write("no such thing\n")
                sys.exit(3)
            if "helper" in options:  # something that verifiers started in a session of its own
                subprocess.Popen(["sleep", str(options["helper"])], start_new_session=True)
            rows = [
                {"messages": question(number), "hash": f"h{number}", "data": {"fault": fault, "answer": str(number)}}
                for number, fault in enumerate(options["faults"])
            ]
            faults = dict(enumerate(options["faults"]))
            say({"talk": talk, "end": {"tasks": rows}})
        elif "play" in line:
            fault = faults[line["play"]]
            faults[-talk] = fault
            asked = {"agent": "a", "messages": question(line["play"]), "tools": [], "most": None}
            say({"talk": talk, "ask": asked})
        elif "cancel" in line:
            if not deaf:
                say({"talk": talk, "end": {"error": "cancelled"}})
        else:
            fault = faults[-talk]
            if fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            deaf = deaf or fault == "deaf"
            if fault == "raises":
                say({"talk": talk, "end": {"error": "TaskError: scoring: ValueError: no"}})
            elif fault == "unscored":
                say({"talk": talk, "end": {"error": "no reward correct: it was not scored"}})
            elif fault == "none":
                say({"talk": talk, "end": {**REWARD, "stopped": False}})


if __name__ == "__main__":
    main()
