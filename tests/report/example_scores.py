"""What evaluations and the verdict leave behind: scores, tasks, answers, claims."""

from __future__ import annotations

import math
import random
from typing import Any

from .example_documents import HOSTILE

TRAINED = ("pretrain", "extend", "sft", "prefer", "rl", "distill")
BITS_PER_BYTE = {"pretrain": 2.231, "extend": 2.218, "sft": 2.402, "prefer": 2.411, "rl": 2.455, "distill": 2.377}
ACCURACY = {"pretrain": 0.0, "extend": 0.004, "sft": 0.412, "prefer": 0.437, "rl": 0.618, "distill": 0.607}
TOOL = {"pretrain": 0.0, "extend": 0.0, "sft": 0.71, "prefer": 0.735, "rl": 0.842, "distill": 0.83}
NEEDLE = {"pretrain": 0.12, "extend": 0.44, "sft": 0.41, "prefer": 0.42, "rl": 0.40, "distill": 0.45}


def scores(stage: str) -> dict[str, dict[str, Any]]:
    """What the evaluation of a stage's checkpoint found."""

    strings = round(ACCURACY[stage] * 0.83, 4)
    return {
        "bits_per_byte": row(BITS_PER_BYTE[stage], 1840, "Bits per byte", higher_is_better=False),
        "accuracy/arithmetic": row(ACCURACY[stage], 512, "Accuracy, arithmetic"),
        "accuracy/strings": row(strings, 256, "Accuracy, strings", held_out=False),
        "accuracy/calculator": row(TOOL[stage], 200, "Accuracy, calculator"),
        "needle/512": row(NEEDLE[stage], 100, "Needle at 512 tokens", chance=0.1),
    }


def row(value: float, count: int, label: str, **more: Any) -> dict[str, Any]:
    """A score: a share, with the error of one, or bits."""
    error = math.sqrt(value * (1 - value) / count) if value < 1 else 0.0062
    return {
        "value": value,
        "standard_error": error,
        "count": count,
        "clusters": None,
        "interval": [value - 1.96 * error, value + 1.96 * error],
        "label": label,
        "higher_is_better": True,
        "chance": None,
        "held_out": True,
    } | more


def history() -> dict[int, dict[str, dict[str, Any]]]:
    """What eval-pretrain measured of earlier steps: one metric that can be trusted, one at chance, one that only jumps."""
    steps = range(100, 900, 100)
    quiz = [0.262, 0.301, 0.338, 0.362, 0.388, 0.402, 0.419, 0.431]
    exam = [0.251, 0.244, 0.259, 0.247, 0.256, 0.243, 0.252, 0.249]
    jumps = [0.24, 0.28, 0.34, 0.26, 0.4, 0.29, 0.42, 0.36]
    bits = [3.1, 2.8, 2.63, 2.51, 2.42, 2.34, 2.28, BITS_PER_BYTE["pretrain"]]

    return {
        step: {
            "bits_per_byte": row(bits[at], 1840, "Bits per byte", higher_is_better=False),
            "quiz/accuracy": row(quiz[at], 2000, "Accuracy, quiz", chance=0.25),
            "exam/accuracy": row(exam[at], 2000, "Accuracy, exam", chance=0.25),
            "puzzles/accuracy": row(jumps[at], 50, "Accuracy, puzzles", chance=0.0, held_out=False),
        }
        for at, step in enumerate(steps)
    }


def units(stage: str) -> dict[str, dict[str, float]]:
    """scores/tasks.json: what the needle score is the mean of. Tasks are shared, so that changes are paired."""
    right = round(NEEDLE[stage] * 100)
    return {"needle/512": {f"needle-{index:03d}": float(index < right) for index in range(100)}}


def claims() -> list[dict[str, Any]]:
    """The verdict on the recipe's promises: three in the usual form, one with fields that nobody knows."""

    def claim(
        metric: str, stage: str, direction: str, reference: str | float, against: float, by: float
    ) -> dict[str, Any]:
        score = scores(stage)[metric]
        return {
            "claim": f"held: {metric} of {stage} {direction} {reference}",
            "held": True,
            "metric": metric,
            "stage": stage,
            "direction": direction,
            "reference": reference,
            "value": score["value"],
            "reference_value": against,
            "difference": score["value"] - against,
            "standard_error": score["standard_error"],
            "by": by,
            "sigmas": 2.0,
        }

    return [
        claim("bits_per_byte", "pretrain", "below", "unigram", 4.8731, 1.0),
        claim("accuracy/arithmetic", "sft", "above", "pretrain", 0.0, 0.0),
        claim("accuracy/arithmetic", "rl", "above", "sft", ACCURACY["sft"], 0.0),
        {
            "claim": "Distillation undoes forgetting <b>not bold</b>",
            "held": False,
            "value": 2.377,
            "allowed": 2.331,
            "note": None,
        },
    ]


def samples(stage: str, rng: random.Random) -> list[dict[str, Any]]:
    """scores/samples.jsonl: two samples of each of 60 tasks of three kinds."""
    rows: list[dict[str, Any]] = []
    for number in range(60):
        kind = ("arithmetic", "calculator", "strings")[number % 3]
        a, b = 11 + number, 7 + number % 13
        answer = str(a * b) if kind != "strings" else f"word{number}"[::-1]
        prompt = (
            f"What is {a} * {b}?"
            if kind != "strings"
            else f"Write word{number} backwards. {HOSTILE[number % len(HOSTILE)]}"
        )
        if number % 20 == 7:  # a text that is only continued: nothing to judge
            rows.append(
                {
                    "task_id": f"prompt-{number}",
                    "kind": "continuation",
                    "prompt": "The licence of this",
                    "completion": " software is " + "x" * number,
                    "expected": None,
                    "correct": None,
                }
            )
        for _ in range(2):
            right = rng.random() < ACCURACY[stage]
            said = answer if right else str(a * b + rng.randint(1, 9))
            if stage in ("pretrain", "extend"):
                text = f"def test_{number}(self):\n    self.assertEqual({a}, {b})\n" + HOSTILE[number % len(HOSTILE)]
            elif kind == "calculator":
                arguments = f'{{"name": "calculator", "arguments": {{"expression": "{a}*{b}"}}}}'
                call = f"<tool_call>{arguments}</tool_call><|im_end|>"
                result = f"<|im_start|>tool\n<tool_response>{said}</tool_response><|im_end|>\n<|im_start|>assistant"
                text = f"<think>I need {a} times {b}.</think>{call}\n{result}\n{said}<|im_end|>"
            else:
                steps = f"{a} * {b}: {a} * {b - 1} = {a * (b - 1)}, plus {a} is {said}."
                text = f"<think>{steps} <script>alert(1)</script></think>{said}"
            rows.append(
                {
                    "task_id": f"{kind}-{number:03d}",
                    "kind": kind,
                    "prompt": prompt,
                    "completion": text,
                    "expected": answer,
                    "correct": right,
                }
            )
    return rows
