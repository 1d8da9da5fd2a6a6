"""Records what lm-eval's `ifeval` says about the odd answers of ifeval_answers.py, in published_ifeval.json.

    python -m tests.evals.suites.record_ifeval LM_EVAL

LM_EVAL is the folder lm_eval/tasks/ifeval of lm-eval 0.4.13. It needs langdetect, immutabledict and nltk with its data
punkt_tab, which is on no package index by itself; so the verdicts are recorded. Each is the digits of the strict and of the
loose verdicts, in the order of the prompt's instructions. langdetect draws random numbers: its seed is 0, as ours is.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from tests.envs.verifiers.record_published import DATA, load_ifeval
from tests.evals.suites.ifeval_answers import answers_hash, answers_of, some_rows

FILE = Path(__file__).parent / "published_ifeval.json"


def main(folder: str) -> None:
    """Run it and write the file."""
    importlib.import_module("langdetect").DetectorFactory.seed = 0
    published = load_ifeval(Path(folder))
    rows = some_rows(DATA)
    verdicts = {}
    for row in rows:
        found = [published.process_results(row, [answer]) for answer in answers_of(row)]
        verdicts[row["key"]] = [
            "/".join("".join(str(int(bit)) for bit in one[f"inst_level_{level}_acc"]) for level in ("strict", "loose"))
            for one in found
        ]
        for one, bits in zip(found, verdicts[row["key"]], strict=True):
            strict, loose = bits.split("/")
            assert one["prompt_level_strict_acc"] == ("0" not in strict)
            assert one["prompt_level_loose_acc"] == ("0" not in loose)
    record = {"answers": answers_hash(rows), "verdicts": verdicts}
    FILE.write_text(json.dumps(record).replace("], ", "],\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
