"""The engine: memory that stays flat while the input grows, and two workers against one.

Whole curations (read, rules, exact and near deduplication, write) in processes of their own, of JSONL files made from the
corpus. Memory is the largest resident size that a process ever had; that of the workers is the largest among them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow

from benchmarks.curation.corpus import larger

FILE_BYTES = 50_000_000
STEPS = [
    {"step": "split"},
    {"step": "gopher_quality"},
    {"step": "gopher_repetition"},
    {"step": "exact_dedup"},
    {"step": "near_dedup"},
]
DEADLINE_SECONDS = 3600
SCRIPT = """
import json, multiprocessing, os, sys, threading, time
from pathlib import Path
from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

def peak(process):  # not getrusage: on Linux that begins with what the process had that started this one
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:")), 0.0)

peaks = {}
def watch():
    while True:
        for worker in multiprocessing.active_children():
            try:
                peaks[worker.pid] = max(peak(worker.pid), peaks.get(worker.pid, 0.0))  # one that ends has none
            except OSError:
                pass  # it has just ended
        time.sleep(0.2)

threading.Thread(target=watch, daemon=True).start()
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
config = CurateConfig(**json.loads(sys.argv[2]))
began = time.monotonic()
summary = run_stage(config, {}, StageFolder(path=folder, seed=1, progress=Progress()))
times = os.times()
print(json.dumps({
    "seconds": time.monotonic() - began,
    "cpu": times.user + times.system + times.children_user + times.children_system,
    "parent": peak(os.getpid()),
    "worker": max(peaks.values(), default=0.0),
    "bytes": summary["raw_bytes"],
    "sha256": summary["sha256"],
}))
"""


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """Memory at two sizes, and the speed of two workers against one at both."""
    small, large = (10, 30) if quick else (100, 1000)
    texts = corpus.column("text").to_pylist()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        runs = {}
        for megabytes in (small, large):
            write_rows(Path(temporary) / str(megabytes), texts, megabytes)
            if megabytes == small:
                curated(Path(temporary), str(small), 1)  # the first run after a change compiles the loops
            runs[megabytes] = curated(Path(temporary), str(megabytes), 2)
            results.append(speed_row(megabytes, curated(Path(temporary), str(megabytes), 1), runs[megabytes]))
        results += [memory_row(runs, process, small, large) for process in ("worker", "parent")]
    return results


def speed_row(megabytes: int, alone: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Two workers against one: wall time of the whole stage, the start of the workers included."""
    assert alone["sha256"] == two["sha256"], "the results differ with the number of workers"
    return {
        "case": f"curation of {megabytes} MB, two workers against one",
        "ours": round(alone["bytes"] / 1e6 / two["seconds"], 2),
        "peer": round(alone["bytes"] / 1e6 / alone["seconds"], 2),
        "peer_name": "one worker",
        "ratio": round(alone["seconds"] / two["seconds"], 2),
        "goal": None,
        "unit": "MB/s",
    }


def memory_row(runs: dict[int, dict[str, Any]], process: str, small: int, large: int) -> dict[str, Any]:
    """Memory at the larger size against memory at the smaller one."""
    name = {"worker": "largest worker", "parent": "main process"}[process]
    return {
        "case": f"memory of the {name}: {large} MB against {small} MB of input",
        "ours": round(runs[large][process]),
        "peer": round(runs[small][process]),
        "peer_name": f"{small} MB",
        "ratio": round(runs[large][process] / runs[small][process], 2),
        "goal": None,
        "unit": "MB",
    }


def write_rows(folder: Path, texts: list[str], megabytes: int) -> None:
    """JSONL files of this size together."""
    folder.mkdir()
    size, number, file = FILE_BYTES, 0, None
    for count, text in enumerate(larger(texts, megabytes)):
        if size >= FILE_BYTES:
            if file is not None:
                file.close()
            file = (folder / f"{number:03d}.jsonl").open("w", encoding="utf-8")
            size, number = 0, number + 1
        assert file is not None
        size += file.write(json.dumps({"id": str(count), "text": text}) + "\n")
    if file is not None:
        file.close()


def curated(folder: Path, name: str, workers: int) -> dict[str, Any]:
    """One curation in a process of its own."""
    config = {"sources": [{"files": f"{folder / name}/*.jsonl"}], "steps": STEPS, "workers": workers}
    with tempfile.TemporaryDirectory(dir=folder) as out:
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, f"{out}/run/stage", json.dumps(config)],
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    measured: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return measured
