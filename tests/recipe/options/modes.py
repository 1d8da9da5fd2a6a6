"""The ways in which each kind of stage can be run, at their smallest: a recipe of one stage and the files that it reads.

A mode is what makes some options meaningless: files instead of tasks, one update a batch, no mesh.
"""

from __future__ import annotations

import argparse
import collections
import heapq
import inspect
import json
import random
import re
import statistics
import subprocess
import tarfile
import typing
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.workspace.config import content_hash
from tests.post.conftest import school
from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer
from tests.train.pretraining import CONFIG, write_inputs


class Mode(NamedTuple):
    """A stage's kind, its options, and its inputs by role; `{world}` in a text is the folder that `write_world` filled."""

    kind: str
    options: Mapping[str, Any]
    inputs: Mapping[str, str] = {}

    def load(self, world: Path, changes: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe, which has this stage only, under the name `it`; `changes` are the stage's own: `{"optimizer.lr": 1}`."""
        stage = {"stage": self.kind, **self.options, **({"inputs": self.inputs} if self.inputs else {})}
        text = json.dumps({"name": "options", "seed": 1, "stages": {"it": stage}}).replace("{world}", str(world))
        path = world / f"{content_hash(text)}.yaml"
        path.write_text(text, encoding="utf-8")
        return load_recipe(path, {f"it.{key}": value for key, value in (changes or {}).items()})


def write_world(folder: Path) -> Path:
    """Everything that a mode reads: two models, a tokenizer, shards, conversations, pairs, rated answers, texts."""
    tokenizer = tiny_tokenizer()
    school(tokenizer, folder)  # right often enough that rewards differ
    (folder / "model").symlink_to(folder / "sft" / "checkpoint")
    checkpoint_of(tiny_model(tokenizer, 1, std=0.2), folder / "teacher")
    checkpoint_of(tiny_model(tokenizer, 2, std=0.2), folder / "third")
    write_inputs(folder)
    sums = [(f"{a} + {b}?", str(a + b), str(a + b + 1)) for a in range(6) for b in range(6)]
    far = {"prompt": "1 + 1?", "chosen": "2", "rejected": "It is three, or four."}
    _write_rows(folder / "talk.jsonl", [{"messages": [_user(q), _assistant(right)]} for q, right, _ in sums])
    _write_rows(
        folder / "pairs.jsonl", [{"prompt": q, "chosen": right, "rejected": wrong} for q, right, wrong in sums] + [far]
    )
    _write_rows(
        folder / "rated.jsonl",
        [
            {"prompt": q, "completion": said, "label": said == right}
            for q, right, wrong in sums
            for said in (right, wrong)
        ],
    )
    texts = folder / "texts"
    texts.mkdir()
    for module in (argparse, collections, heapq, json, re, statistics, subprocess, typing, unittest):
        (texts / f"{module.__name__}.txt").write_text(inspect.getdoc(module) or "", encoding="utf-8")
    _write_rows(texts / "rows.jsonl", [{"text": inspect.getdoc(tarfile)}])
    (texts / "damaged.txt").write_text(f"{inspect.getdoc(random)}\0", encoding="utf-8")
    run_recipe(MODES["curate"].load(folder), folder / "runs")
    next((folder / "runs").glob("*/it-*/documents")).rename(folder / "documents")
    return folder


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


_SUMS = {"weights": {"no_think": 1.0}, "no_think": {"operations": ["sum"], "largest": 5}}
_SHORT = {"steps": 2, "sequence_length": 64, "device": "cpu", "precision": "float32"}
_MODEL = {"checkpoint": "{world}/model"}
_TEACHER = _MODEL | {"teacher": "{world}/teacher"}
_SAMPLED = _SHORT | {"tasks": _SUMS, "prompts_per_step": 4, "max_new_tokens": 2}
_SHARDS = {"tokenizer": "{world}/tokenizer", "shards": "{world}/shards"}
_OWN = _SHORT | {"tasks": _SUMS, "prompts": 24, "samples": 8, "max_new_tokens": 2, "batch_pairs": 1}
_TWO: dict[str, Any] = {"checkpoints": {"first": "{world}/model", "second": "{world}/teacher"}}

_FOUR = CONFIG | {"steps": 4, "validate_every": 2}

MODES: dict[str, Mode] = {
    "pretrain": Mode(
        "pretrain",
        CONFIG | {"steps": 24, "guards": {"window": 8}, "checkpoints": {"every": 3}},
        _SHARDS,
    ),
    "pretrain, cosine": Mode("pretrain", _FOUR | {"schedule": {"kind": "cosine"}}, _SHARDS),
    "pretrain, constant": Mode("pretrain", _FOUR | {"schedule": {"kind": "constant"}}, _SHARDS),
    "pretrain, multi_step": Mode("pretrain", _FOUR | {"schedule": {"kind": "multi_step"}}, _SHARDS),
    "pretrain, muon": Mode("pretrain", _FOUR | {"optimizer": {"kind": "muon", "lr": 0.01}}, _SHARDS),
    "sft on tasks": Mode("sft", _SHORT | {"tasks": _SUMS, "task_conversations": 40}, _MODEL),
    "sft on files": Mode("sft", _SHORT | {"files": ["{world}/talk.jsonl"], "tasks": None}, _MODEL),
    "sft with adapters": Mode("sft", _SHORT | {"files": ["{world}/talk.jsonl"], "tasks": None, "lora": {}}, _MODEL),
    "prefer, own answers": Mode("prefer", _OWN, _MODEL),
    "prefer, pairs of files": Mode("prefer", _SHORT | {"pairs": {"files": ["{world}/pairs.jsonl"]}}, _MODEL),
    "prefer, rated files": Mode(
        "prefer", _SHORT | {"pairs": {"files": ["{world}/rated.jsonl"]}, "algorithm": {"algorithm": "kto"}}, _MODEL
    ),
    "reward": Mode("reward", _SHORT | {"files": ["{world}/pairs.jsonl"], "batch_answers": 8}, _MODEL),
    "rl": Mode("rl", _SAMPLED | {"group": 4}, _MODEL),
    "rl, several updates a batch": Mode("rl", _SAMPLED | {"group": 4, "mini_batches": 2}, _MODEL),
    "rl, ppo": Mode("rl", _SAMPLED | {"group": 4, "algorithm": {"algorithm": "ppo"}}, _MODEL),
    "distill, own answers": Mode("distill", _SAMPLED, _TEACHER),
    "distill, conversations": Mode(
        "distill",
        _SHORT | {"algorithm": "gkd", "on_policy": 0, "files": ["{world}/talk.jsonl"], "prompts_per_step": 2},
        _TEACHER,
    ),
    "merge, ties": Mode(
        "merge", {"method": "ties", "base": "third"}, {"checkpoints": _TWO["checkpoints"] | {"third": "{world}/third"}}
    ),
    "merge, linear": Mode("merge", {}, _TWO),
    "merge, slerp": Mode("merge", {"method": "slerp"}, _TWO),
    "tokenizer": Mode("tokenizer", {"vocabulary_size": 300}, {"documents": "{world}/documents"}),
    "tokenize": Mode("tokenize", {}, {"documents": "{world}/documents", "tokenizer": "{world}/tokenizer"}),
    "eval": Mode(
        "eval",
        {
            "device": "cpu",
            "suites": [
                {
                    "suite": "tasks",
                    "kinds": [{"kind": "no_think", "count": 12}],
                    "difficulty": {"no_think": _SUMS["no_think"]},
                },
                {"suite": "continuations", "texts": ["1 + 1?"]},
            ],
        },
        _MODEL,
    ),
    "curate": Mode(
        "curate",
        {"sources": [{"files": "{world}/texts/*"}], "steps": [{"step": "exact_dedup"}, {"step": "gopher_quality"}]},
    ),
}

LATE = {
    "canary": "its trend is of several measurements: tests/post/rl/checks/test_canary.py",
    "mesh.reshard_after_forward": "here is one process, which divides no weights: tests/train/parallel/test_shard.py",
    "guards.slow_factor": "speeds are compared over more steps: tests/train/guards/test_rules.py",
}
"""Options, or all within one, that nothing looks at in so small a run, and where their effect is tested."""

WITHOUT_OCCASION = {
    "pairs.too_long": "no pair of these is: tests/post/test_prefer_stage.py",
    "too_long": "no conversation of these is: tests/post/test_sft_options.py",
    "bad_rows": "no row of these is: tests/post/test_sft_options.py",
    "exclude_solved": "no question of these is solved in every attempt: tests/post/rl/curriculum/test_difficulty.py",
    "dynamic_sampling": "a batch of these has a group with both kinds of answers: tests/post/rl/test_source.py",
    "algorithm.truncated_factor": "no answer of these is right and cut off: tests/post/rl/test_source.py",
    "algorithm.aggregation": "all answers of these are as long: tests/train/losses/test_policy_gradient.py",
    "suites.0.max_turns": "no task of these has tools: tests/evals/engine/test_answer.py",
    "form": "of what suites can be asked in, auto takes the same: tests/evals/test_options.py",
    "data": "where suites of published files look, which these are not: tests/test_cli_eval.py",
    "slots": "how many are asked at once, not what: tests/evals/engine/test_answer.py",
    "remember": "whether answers are kept for another time: tests/test_cli_eval.py",
    "minimum_frequency": "all pairs that are merged are frequent: tests/tokens/test_train_tokenizer.py",
    "held_out_share": "of so few documents none is held out: tests/tokens/test_train_tokenizer.py",
    "validation_share": "of so few documents none is held out: tests/tokens/test_tokenize.py",
    "sources.all.quality_at_least": "these documents have no quality: tests/tokens/test_tokenize.py",
    "sources.0.id": "these rows have no id: tests/data/read/test_jsonl.py",
    "on_duplicate_id": "these rows have no id: tests/data/test_curate.py",
    "retries": "no environment of these fails: tests/post/rl/test_failures.py",
    "episode_seconds": "no episode of these takes long: tests/post/rl/test_failures.py",
}
"""Options that are read, but act on what these modes do not have, and where their effect is tested."""


def stands_in(key: str, table: Mapping[str, str]) -> bool:
    """Whether an option, named with dots, or what it is within, is in a table."""
    return any(key == named or key.startswith(f"{named}.") for named in table)
