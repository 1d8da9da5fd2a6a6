"""What training stages leave behind: metrics and trajectories."""

from __future__ import annotations

import math
import random
from typing import Any


def metrics(stage: str, rng: random.Random) -> list[dict[str, Any]]:
    """metrics.jsonl of a training stage. Pre-training is longer than the page can draw and has a spike and a NaN."""
    steps = {"pretrain": 1600, "extend": 200, "sft": 320, "prefer": 60, "rl": 48, "distill": 30}[stage]
    start, end = {
        "pretrain": (8.3, 2.9),
        "extend": (3.1, 2.85),
        "sft": (2.6, 0.62),
        "prefer": (0.69, 0.41),
        "rl": (0.02, 0.01),
        "distill": (0.31, 0.12),
    }[stage]
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        share = step / steps
        loss = end + (start - end) * math.exp(-5 * share) + rng.gauss(0, 0.04 * (start - end) ** 0.5 + 0.004)
        row: dict[str, Any] = {
            "step": step,
            "loss": loss,
            "learning_rate": 3e-3 * min(1, step / (0.05 * steps), (1 - share) / 0.2 + 0.01),
            "gradient_norm": 0.4 + 2 * math.exp(-8 * share) + abs(rng.gauss(0, 0.08)),
            "tokens_per_second": 41000 + rng.gauss(0, 900),
            "tokens": step * 8192,
        }
        if stage == "pretrain" and step == 777:
            row["loss"] = 11.5
        if stage == "pretrain" and step == 1200:
            row["gradient_norm"] = math.nan
        if stage == "prefer":
            row |= {
                "preference_accuracy": 0.5 + 0.4 * share + rng.gauss(0, 0.03),
                "margin": 1.8 * share + rng.gauss(0, 0.1),
            }
        if stage in ("rl", "distill"):
            row |= {"response_length": 96 - 22 * share + rng.gauss(0, 3)}
        if stage == "rl":
            row |= {
                "reward": 0.42 + 0.24 * share + rng.gauss(0, 0.03),
                "reward_std": 0.41 - 0.1 * share,
                "ratio_mean": 1 + rng.gauss(0, 0.002),
                "clip_share": abs(rng.gauss(0.02, 0.01)),
                "format_share": min(1.0, 0.9 + 0.1 * share),
                "correct_share": 0.4 + 0.25 * share,
            }
        rows.append(row)
        if stage in ("pretrain", "extend") and step % (steps // 16) == 0:
            rows.append({"step": step, "validation_bits_per_byte": 2.23 + 2.4 * math.exp(-4.5 * share)})
    return rows


def trajectories(stage: str, rng: random.Random) -> list[dict[str, Any]]:
    """trajectories.jsonl: four rollouts a task at every fourth step, with one advantage a rollout (rl) or a token.

    In the second group of a step one answer has some reward without being right, and the wrong ones ran out of tokens. Wrong ones
    of rl's third have a malformed last turn, in every other step because its limit cut it; calls of the first earn something in
    the last step. Weights of rl that drew a token are up to two updates old; in distill all are new.
    """
    rows = []
    oldest = 3 if stage == "rl" else 1
    more = random.Random(7)  # for what was added later: the rest of the example stays as it is
    for step in range(0, 48, 4):
        for group in range(3):
            a, b = 12 + step + group, 5 + group
            rewards = [float(rng.random() < 0.4 + step / 100) for _ in range(4)]
            if group == 1:
                rewards[0] = 0.5
            mean = sum(rewards) / 4
            for reward in rewards:
                said = str(a * b) if reward == 1 else str(a * b + 10)
                given = [
                    "<|im_start|>",
                    "user",
                    "\n",
                    "What",
                    " is",
                    f" {a}",
                    " *",
                    f" {b}",
                    "?",
                    "<|im_end|>",
                    "\n",
                    "<|im_start|>",
                    "assistant",
                    "\n",
                ]
                call = [
                    "<think>",
                    "I",
                    " need",
                    " the",
                    " product",
                    "</think>",
                    "<tool_call>",
                    '{"name":',
                    ' "calculator",',
                    ' "arguments":',
                    ' {"expression":',
                    f' "{a}*{b}"',
                    "}}",
                    "</tool_call>",
                    "<|im_end|>",
                ]
                result = [
                    "\n",
                    "<|im_start|>",
                    "tool",
                    "\n",
                    "<tool_response>",
                    str(a * b),
                    "</tool_response>",
                    "<|im_end|>",
                    "\n",
                    "<|im_start|>",
                    "assistant",
                    "\n",
                ]
                last = ["<think>", "The", " tool", " says", "\n", *said, ".", "</think>", *said, "<|im_end|>"]
                if step == 44 and group == 0:
                    last[1:1] = [
                        "</script>",
                        "<script>document.title='owned'</script>",
                        "</textarea>",
                        "🧪",
                        "",
                        "\u2028",
                    ]

                malformed = stage == "rl" and group == 2 and reward == 0
                ended = "tokens" if group == 1 and reward == 0 else "malformed" if malformed else "answer"
                cut = "length" if malformed and step % 8 == 0 else "stop"
                earned = {"call": 0.25} if (stage, step, group) == ("rl", 44, 0) else {}

                def node(
                    role: str, pieces: list[str], sampled: bool, advantage: float, now: int = step, **told: Any
                ) -> dict[str, Any]:
                    logprobs = [-abs(rng.gauss(0, 0.7)) if sampled else None for _ in pieces]
                    each = [advantage + (rng.gauss(0, 0.4) if stage == "distill" else 0.0) for _ in pieces]
                    return {
                        "role": role,
                        "pieces": pieces,
                        "sampled": sampled,
                        "ended": "stop" if sampled else "",
                        "rewards": {},
                        "advantages": each if sampled else [None] * len(pieces),
                        "logprobs": logprobs,
                        "old_logprobs": [None if known is None else known + more.gauss(0, 0.05) for known in logprobs],
                        "entropies": [more.expovariate(2) if sampled else None for _ in pieces],
                        "versions": [now - min(now, more.randrange(oldest)) if sampled else None for _ in pieces],
                        **told,
                    }

                rows.append(
                    {
                        "step": step,
                        "task_id": f"arithmetic-{a}x{b}",
                        "kind": "calculator" if group < 2 else "strings",
                        "prompt": f"What is {a} * {b}?",
                        "reward": reward,
                        "rewards": {},
                        "correct": reward == 1,
                        "format_ok": group != 2,
                        "ended": ended,
                        "group": group,
                        "group_size": 4,
                        "error": None,
                        "nodes": [
                            node("prompt", given, False, 0),
                            node("assistant", call, True, reward - mean, rewards=earned),
                            node("tool", result, False, 0),
                            node("assistant", last, True, reward - mean, ended=cut),
                        ],
                    }
                )
    return rows
