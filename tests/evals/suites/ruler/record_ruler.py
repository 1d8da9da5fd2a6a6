"""Records what NVIDIA's RULER makes and scores, in published_ruler.json.

    python -m tests.evals.suites.ruler.record_ruler RULER DATA

RULER is a checkout of github.com/NVIDIA/RULER at c3f5e3b, DATA the folder of data sets. Its scripts run as they are, with two
stand-ins: the tokenizer is SmolLM2's, and sentences are split by Ingot (nltk's model is on no package index). wonderwords is
3.0.1. Kept are the sizes and hashes of the prompts, and the scores of the answers of cases.py.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import runpy
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import yaml

from ingot.envs.verifiers.text.words import sentences
from tests.evals.suites.ruler import cases

FILE = Path(__file__).parent / "published_ruler.json"


def digest(prompt: str, answers: list[str]) -> str:
    """A prompt with its answers, in few characters."""
    return hashlib.sha256(json.dumps([prompt, answers]).encode()).hexdigest()[:16]


def main(checkout: Path, data: Path) -> None:
    """Run RULER's generators and scorer and write the file."""
    scripts = checkout / "scripts"
    prepare(scripts / "data" / "synthetic" / "json", data)
    stand_in(data)
    tasks = yaml.safe_load((scripts / "synthetic.yaml").read_text(encoding="utf-8"))
    sys.path.insert(0, str(scripts / "data" / "synthetic"))
    templates = runpy.run_path(str(scripts / "data" / "synthetic" / "constants.py"))["TASKS"]
    prompts = {
        f"{name}/{length}": generate(scripts, name, task, templates[task["task"]], length)
        for name, task in reversed(tasks.items())
        for length in cases.LENGTHS
    }
    FILE.write_text(json.dumps({"prompts": prompts, "scores": scores(scripts)}, indent=1) + "\n", encoding="utf-8")


def prepare(folder: Path, data: Path) -> None:
    """The files that RULER reads."""
    (folder / "PaulGrahamEssays.json").write_text(json.dumps({"text": cases.essay(data)}), encoding="utf-8")
    (folder / "hotpotqa.json").write_text(json.dumps(cases.hotpotqa_rows(data)), encoding="utf-8")
    (folder / "english_words.json").write_text("{}", encoding="utf-8")
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in cases.squad_rows(data):
        answers = [{"text": text} for text in row["answers"]]
        question = {"question": row["question"], "answers": answers, "is_impossible": False}
        articles.setdefault(row["title"], {}).setdefault(row["context"], []).append(question)
    squad = [
        {"paragraphs": [{"context": context, "qas": questions} for context, questions in paragraphs.items()]}
        for paragraphs in articles.values()
    ]
    (folder / "squad.json").write_text(json.dumps({"data": squad}), encoding="utf-8")


def stand_in(data: Path) -> None:
    """Put our tokenizer and our sentences where RULER looks for its own."""
    ours = cases.tokenizer(data)
    shown = types.SimpleNamespace(text_to_tokens=ours.encode)
    sys.modules["tokenizer"] = types.SimpleNamespace(select_tokenizer=lambda *_: shown)  # type: ignore[assignment]
    sys.modules["nltk"] = types.ModuleType("nltk")
    sys.modules["nltk.tokenize"] = types.SimpleNamespace(sent_tokenize=sentences)  # type: ignore[assignment]


def sorted_once(values: Any, **options: Any) -> list[Any]:
    """`sorted`, but for the six million keys, which are the same in every run of a script."""
    if len(values := list(values)) < 1_000_000:
        return sorted(values, **options)
    if not KEYS:
        KEYS.extend(sorted(values))
    return KEYS


KEYS: list[str] = []


def generate(scripts: Path, name: str, task: dict[str, Any], template: dict[str, Any], length: int) -> list[str]:
    """The prompts of a task."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "save_dir": folder,
            "save_name": name,
            "tokenizer_path": "-",
            "max_seq_length": length,
            "tokens_to_generate": template["tokens_to_generate"],
            "num_samples": cases.COUNT,
            "template": template["template"] + template["answer_prefix"],
            **task["args"],
        }
        sys.argv = ["generate", *(f"--{key}={value}" for key, value in options.items())]
        script = scripts / "data" / "synthetic" / f"{task['task']}.py"
        runpy.run_path(str(script), init_globals={"sorted": sorted_once}, run_name="__main__")
        lines = (Path(folder) / name / "validation.jsonl").read_text(encoding="utf-8").split("\n")
        rows = [json.loads(line) for line in lines if line]
    return [digest(row["input"] + row["answer_prefix"], row["outputs"]) for row in rows]


def scores(scripts: Path) -> list[list[float]]:
    """For each answer: the score by all references, and by any."""
    tree = ast.parse((scripts / "eval" / "evaluate.py").read_text(encoding="utf-8"))
    tree.body = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "postprocess_pred"]
    names: dict[str, Any] = {"re": re}
    exec(compile(tree, "evaluate.py", "exec"), names)
    rules = runpy.run_path(str(scripts / "eval" / "synthetic" / "constants.py"))
    found = []
    for answer, references in cases.answers():
        text = names["postprocess_pred"](answer, {})
        found.append([rules[rule]([text], [references]) for rule in ("string_match_all", "string_match_part")])
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
