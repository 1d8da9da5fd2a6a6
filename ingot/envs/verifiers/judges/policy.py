"""A judge that is a model of ours, answered by the sampling engine. Its reply is held to the schema while it is drawn."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.envs.rollout.policies import Policy
from ingot.envs.verifiers.errors import VerifierError
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError

LONGEST_WAIT = 600.0  # seconds, for the answers before


class PolicyJudge:
    """Asks a policy, without thinking: the reply is the verdict. One call at a time, as engines have one caller; others wait."""

    def __init__(self, policy: Policy, chat: ChatFormat, *, max_tokens: int = 256, temperature: float = 0.0) -> None:
        self.policy, self.chat = policy, chat
        self.calls = 0
        self._turn = threading.Lock()
        self._sampling = Sampling(max_tokens, temperature, stop_tokens=chat.stop_tokens)

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> str:
        """The reply; with a schema, valid under it unless the tokens ran out. A VerifierError if it cannot read so much."""
        if not self._turn.acquire(timeout=LONGEST_WAIT):
            raise VerifierError(
                "the judge is busy with other answers", place="judge", fix="sample fewer answers at once"
            )
        try:
            return self._answer(messages, schema)
        finally:
            self._turn.release()

    def _answer(self, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> str:
        self.calls += 1
        sampling = replace(self._sampling, seed=self.calls)
        if schema is not None:
            from ingot.inference.structure.constraint import compile_schema

            sampling = replace(sampling, constraint=compile_schema(dict(schema), self.chat.tokenizer))
        prompt = self.chat.prompt(messages, thinking=False)
        try:
            (completion,) = self.policy.complete([prompt], [sampling])
        except DataError as error:  # more than it can read: it has not judged
            fix = "raise the judge's max_tokens, or take another judge"
            raise VerifierError(error.problem, place="judge", fix=fix) from error
        return self.chat.parse(completion.tokens, in_thinking=self.chat.opens_trace(prompt)).content
