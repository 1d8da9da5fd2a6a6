"""Speed of data curation, step by step: megabytes of text a CPU-second on one core, ours and other libraries' in one run.

The corpus is real and dirty: Debian's documentation packages (see curation/corpus.py). Each file in curation/ measures one
room of ingot/data; `measure` in it says what its peers are. The column `x split` is the ratio to Python's `str.split` on
the same texts, which carries over between machines.

    python benchmarks/data.py [--quick] [--only NAME] [--corpus DIR] [--megabytes N] [--log FILE]

The table goes to stdout, what was left out and how long each file took to stderr. datatrove logs through loguru and shows
progress bars: its log goes to `--log`, by default nowhere, so that it does not end up between the lines of the table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # to be run as a file: the cases import one another as benchmarks.curation

from benchmarks.curation.corpus import corpus as make_corpus  # noqa: E402
from benchmarks.curation.measure import rate  # noqa: E402

HELPERS = ("__init__", "measure", "corpus")


def cases() -> list[str]:
    """The names of the files that measure something."""
    return sorted(path.stem for path in (HERE / "curation").glob("*.py") if path.stem not in HELPERS)


def quiet_peers(log: Path | None) -> None:
    """Keep the logs and progress bars of the peers out of the table."""
    logging.disable(logging.WARNING)
    os.environ["TQDM_DISABLE"] = "1"
    if find_spec("datatrove") is None:
        return
    import datatrove.utils.logging  # adds loguru's sink to stderr when it is imported

    datatrove.utils.logging.logger.remove()
    if log is not None:
        datatrove.utils.logging.logger.add(log)


def show(row: dict[str, Any], split: float) -> None:
    """A line of the table."""
    peer = f"{row['peer']:,.2f}" if row["peer"] is not None else ""
    ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else ""
    goal = f"{row['goal']:g}" if row["goal"] is not None else ""
    to_split = f"{row['ours'] / split:.2f}" if row["unit"] == "MB/CPU-s" else ""
    unit = "" if row["unit"] == "MB/CPU-s" else f"  ({row['unit']})"
    print(f"{row['case']:<58}{row['ours']:>10,.2f}{peer:>10}{ratio:>8}{goal:>7}{to_split:>9}  {row['peer_name']}{unit}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Data curation: ours against datatrove and other libraries.")
    parser.add_argument("--quick", action="store_true", help="a small corpus, fewer rounds: about three minutes")
    parser.add_argument("--only", choices=cases(), help="one file of curation/")
    parser.add_argument("--corpus", type=Path, help="folder where Debian's packages stay between runs")
    parser.add_argument("--megabytes", type=int, help="size of the corpus [100, with --quick 8]")
    parser.add_argument("--log", type=Path, help="file for the logs of the peers [none]")
    parser.add_argument("--device", choices=["cpu"], default="cpu")
    options = parser.parse_args()
    quiet_peers(options.log)
    with tempfile.TemporaryDirectory() as temporary:
        megabytes = options.megabytes or (8 if options.quick else 100)
        texts = make_corpus(options.corpus or Path(temporary), megabytes)
        columns = texts.column("text").to_pylist()
        size = sum(len(text.encode()) for text in columns)
        split = rate(lambda: [len(text.split()) for text in columns], size)
        print(f"{len(texts):,} documents, {size / 1e6:.1f} MB; str.split: {split:.1f} MB/CPU-s on one core")
        print(f"{'case':<58}{'ours':>10}{'peer':>10}{'ratio':>8}{'goal':>7}{'x split':>9}")
        results = []
        for name in [options.only] if options.only else cases():
            began = time.monotonic()
            for row in importlib.import_module(f"benchmarks.curation.{name}").measure(texts, options.quick):
                show(row, split)
                if row["unit"] == "MB/CPU-s":
                    row["split_ratio"] = round(row["ours"] / split, 2)
                results.append(row)
            print(f"  {name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(json.dumps({"benchmark": "data", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
