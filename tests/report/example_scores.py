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

    def share(value: float, count: int, label: str) -> dict[str, Any]:
        error = math.sqrt(value * (1 - value) / count)
        return {"value": value, "standard_error": error, "count": count, "higher_is_better": True, "label": label}

    return {
        "bits_per_byte": {
            "value": BITS_PER_BYTE[stage],
            "standard_error": 0.0062,
            "count": 1840,
            "higher_is_better": False,
            "label": "Bits per byte",
        },
        "accuracy/arithmetic": share(ACCURACY[stage], 512, "Accuracy, arithmetic"),
        "accuracy/strings": share(round(ACCURACY[stage] * 0.83, 4), 256, "Accuracy, strings"),
        "accuracy/calculator": share(TOOL[stage], 200, "Accuracy, calculator"),
        "needle/512": share(NEEDLE[stage], 100, "Needle at 512 tokens"),
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
