"""A run that real stages wrote: the quickstart's recipe, made small, on files that also hold what breaks careless pages.

Every kind of stage that the report shows is in it. It takes about half a minute of one core, once a test run: processes of
pytest-xdist share the folder (conftest.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe

from .example_documents import HOSTILE, LICENCE

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart.yaml"
EVAL = "Return a list of all the names in the given folder that"
ADVICE = (
    "The pump of the heater has to be cleaned once a year, because lime settles in it and the water is then not as warm as "
    "it should be. Turn the heater off, wait for an hour, open both screws with care and take the filter out. If you have "
    "any questions, write to anna@firm.de and we will answer within a day. "
)
EASY = {
    "strings": {"operations": ["last"], "alphabet": "abcd", "letters_min": 2, "letters_max": 4},
    "arithmetic": {"digits_min": 1, "digits_max": 1},
}
STEPS: list[dict[str, Any]] = [
    {"step": "pii"},
    {"step": "split"},
    {"step": "exact_dedup", "keep": "longest"},
    {"step": "gopher_quality", "where": {"kind": "prose"}},
    {"step": "near_dedup"},
    {"step": "decontaminate", "texts": [EVAL]},
    {"step": "quality"},
]
SMALLER: dict[str, Any] = {
    "curate.max_bytes": 1_200_000,
    "curate.workers": 1,
    "curate.steps": STEPS,
    "tokenizer.vocabulary_size": 512,
    "pretrain.model.width": 64,
    "pretrain.model.layers": "layer*2",
    "pretrain.model.blocks.layer.mixer.heads": 2,
    "pretrain.model.blocks.layer.mixer.key_value_heads": 1,
    "pretrain.model.blocks.layer.feed_forward.width": 128,
    "pretrain.steps": 20,
    "pretrain.batch_tokens": 1024,
    "pretrain.validate_every": 10,
    "extend.steps": 6,
    "extend.batch_tokens": 1024,
    "extend.validate_every": 3,
    "sft.steps": 80,
    "sft.sequence_length": 256,
    "sft.batch_conversations": 8,
    "sft.task_conversations": 300,
    "sft.follow_ups": 0,
    "sft.spare_tools": 0,
    "prefer.steps": 4,
    "prefer.prompts": 32,
    "prefer.batch_pairs": 4,
    "rl.steps": 4,
    "rl.prompts_per_step": 6,
    "rl.group": 4,
    "distill.steps": 4,
    "distill.prompts_per_step": 6,
    "base": None,
    "eval.after": "each",
    "eval.suites": [
        {
            "suite": "tasks",
            "temperature": 1.0,
            "max_new_tokens": 48,
            "difficulty": EASY,
            "kinds": [
                {"kind": kind, "count": 6, "samples": 1 + (kind == "strings")}
                for kind in ("arithmetic", "strings", "calculator", "no_think")
            ],
        },
        {"suite": "bits_per_byte", "rows": 4, "sequence_length": 256},
        {"suite": "needle", "lengths": [256, 512], "count": 2},
        {"suite": "continuations", "texts": [EVAL, "This module provides a simple way to read and write"]},
    ],
    "verdict.claims": [
        {"metric": "bits_per_byte", "stage": "pretrain", "below": 12.0},  # what the corpus is depends on the machine
        {"metric": "format/all", "stage": "sft", "above": "pretrain"},
    ],
    "sft.tasks": {**EASY, "weights": {"arithmetic": 0, "strings": 0.7, "calculator": 0.3, "no_think": 0}},
    "prefer.tasks": {**EASY, "weights": {"arithmetic": 0, "strings": 1}},
    "rl.tasks": {**EASY, "weights": {"arithmetic": 0, "strings": 1}},
    "distill.tasks": {**EASY, "weights": {"strings": 0.5, "calculator": 0.5, "no_think": 0}},
}


def run_stages(folder: Path) -> Path:
    """Run the recipe below `folder`; the run."""
    write_documents(folder / "documents.jsonl")
    sources = [{"python": "installed"}, {"files": str(folder / "documents.jsonl"), "name": "web"}]
    recipe = load_recipe(RECIPE, {**SMALLER, "curate.sources": sources})
    return run_recipe(recipe, folder / "runs").folder


def write_documents(path: Path) -> None:
    """Texts that are removed, rewritten, doubled, and hostile; one line is torn and one is not UTF-8."""
    texts = [*HOSTILE, ADVICE, LICENCE, LICENCE, f"Copyright 1999 The authors.\n{LICENCE}"]
    texts += [f"{ADVICE.replace('anna', 'bert')} {EVAL} end in a dot and were changed since the day before that one."]
    lines = [json.dumps({"id": f"web-{number}", "text": text}).encode() for number, text in enumerate(texts)]
    lines += [b'{"id": "torn", "text": "half a li', b'{"id": "bytes", "text": "caf\xff"}']
    path.write_bytes(b"".join(line + b"\n" for line in lines))
