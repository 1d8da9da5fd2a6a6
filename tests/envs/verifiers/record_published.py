"""Records what the published checkers say about our cases, in published_verdicts.json.

    python -m tests.envs.verifiers.record_published LM_EVAL IFBENCH

LM_EVAL is the folder lm_eval/tasks/ifeval of lm-eval 0.4.13; IFBENCH the folder that holds the package ifbench of
allenai/IFBench db69a6f, which is on no package index. They need langdetect, immutabledict, absl-py, emoji, syllapy and nltk
with its data punkt_tab and stopwords. Verdicts are 1, 0, and E where a checker raises; a blank answer follows nothing, as in
both evaluation programs. `gpt4` has the strict and loose verdicts of lm-eval on the GPT-4 answers of IFEval's repository, `punkt`
the number of sentences that nltk finds in real answers.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

from tests.envs.verifiers.instruction_cases import ANSWERS, CASES
from tests.making.rows import read_rows

FILE = Path(__file__).parent / "published_verdicts.json"
DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def answers_hash() -> str:
    """Changes if an answer does: then the verdicts must be recorded again."""
    return hashlib.sha256(json.dumps(ANSWERS).encode()).hexdigest()[:16]


def main(ifeval_folder: str, ifbench_folder: str) -> None:
    """Run both and write the file."""
    langdetect = importlib.import_module("langdetect")
    langdetect.DetectorFactory.seed = 0
    random.seed(0)
    ifeval = load_ifeval(Path(ifeval_folder))
    sys.path.insert(0, ifbench_folder)
    ifbench = importlib.import_module("ifbench.instructions_registry").INSTRUCTION_DICT
    known = importlib.import_module("lm_eval.tasks.ifeval.instructions_registry").INSTRUCTION_DICT
    checkers = ifbench | known
    cases = [
        [id, kwargs, "".join(_verdict(checkers[id], id, kwargs, text) for text in ANSWERS)] for id, kwargs in CASES
    ]
    record = {"answers": answers_hash(), "cases": cases, "gpt4": _gpt4(ifeval), "punkt": _punkt()}
    FILE.write_text(json.dumps(record, ensure_ascii=False).replace("], [", "],\n["), encoding="utf-8")


def _verdict(checker: Any, id: str, kwargs: dict[str, Any], answer: str) -> str:
    if not answer.strip():
        return "0"
    instance = checker(id)
    instance.build_description(**kwargs)
    try:
        return str(int(bool(instance.check_following(answer))))
    except Exception:  # noqa: BLE001 - a peer's code, of which only the verdict is wanted
        return "E"


def _gpt4(ifeval: Any) -> list[list[str]]:
    """[strict, loose] verdicts of each row, as digits in the order of its instructions."""
    answers = {row["prompt"]: row["response"] for row in read_rows(DATA / "ifeval" / "gpt4_responses_dev.jsonl.gz")}
    found = []
    for row in read_rows(DATA / "ifeval" / "ifeval_dev.jsonl.gz"):
        case = ifeval.InputExample(row["key"], row["instruction_id_list"], row["prompt"], row["kwargs"])
        strict = ifeval.test_instruction_following_strict(case, answers[row["prompt"]])
        loose = ifeval.test_instruction_following_loose(case, answers[row["prompt"]])
        found.append(["".join(str(int(bit)) for bit in one.follow_instruction_list) for one in (strict, loose)])
    return found


def real_answers(data: Path) -> list[str]:
    """GPT-4's answers to IFEval's prompts and the answers of a demo set in Alpaca's form."""
    gpt4 = [row["response"] for row in read_rows(data / "ifeval" / "gpt4_responses_dev.jsonl.gz")]
    return gpt4 + [row["output"] for row in read_rows(data / "llamafactory_demo" / "alpaca_en_demo.jsonl.gz")]


def _punkt() -> list[int]:
    nltk = importlib.import_module("nltk")
    return [len(nltk.sent_tokenize(text)) for text in real_answers(DATA)]


def load_ifeval(folder: Path) -> Any:
    """lm-eval's folder of IFEval under its own name, without the rest of the package."""
    for name in ("lm_eval", "lm_eval.tasks"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    package = types.ModuleType("lm_eval.tasks.ifeval")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    return importlib.import_module("lm_eval.tasks.ifeval.utils")


if __name__ == "__main__":
    main(*sys.argv[1:])
