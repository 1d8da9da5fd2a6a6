"""Free continuations of given texts: not scored, kept so that a person can read what a stage did to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.envs.task import Policy
from ingot.inference.sampling import Sampling
from ingot.tokens.tokenizer import Tokenizer


def continue_texts(
    texts: Sequence[str], policy: Policy, tokenizer: Tokenizer, max_new_tokens: int
) -> list[dict[str, Any]]:
    """Rows of samples.jsonl with what greedy decoding writes after each text."""
    if not texts:
        return []
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=0.0, stop_tokens=tokenizer.ends)
    prompts = [[*tokenizer.opening, *tokenizer.encode(text)] for text in texts]
    completions = policy.complete(prompts, [sampling] * len(texts))
    return [
        {
            "task_id": f"prompt-{number}",
            "kind": "continuation",
            "prompt": text,
            "completion": tokenizer.decode(completion.tokens),
            "expected": None,
            "correct": None,
        }
        for number, (text, completion) in enumerate(zip(texts, completions, strict=True))
    ]
