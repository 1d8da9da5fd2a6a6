"""Free continuations of given texts: not scored, kept so that a person can read what a stage did to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ingot.envs.policy import Policy
from ingot.evals.suite import Measured, Subject, Suite
from ingot.inference.sampling import Sampling
from ingot.tokens.tokenizer import Tokenizer


class Continuations(Suite):
    """Greedy continuations of given texts, kept as samples for the report."""

    texts: tuple[str, ...] = Field(min_length=1, description="texts that the model continues")
    tokens: int = Field(48, ge=1, description="tokens of each continuation")

    def measure(self, subject: Subject) -> Measured:
        """No numbers, only samples."""
        return Measured(samples=continue_texts(self.texts, subject.engine, subject.tokenizer, self.tokens))


def continue_texts(
    texts: Sequence[str], policy: Policy, tokenizer: Tokenizer, max_new_tokens: int
) -> list[dict[str, Any]]:
    """Rows of samples.jsonl with what greedy decoding writes after each text."""
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
