"""A judge that is a model of ours, answered by the sampling engine. Its reply is held to the schema while it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.envs.rollout.policies import Policy
from ingot.envs.verifiers.errors import VerifierError
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError


class PolicyJudge:
    """Asks a policy, without thinking: the reply is the verdict. One call at a time, as engines have one caller."""

    def __init__(self, policy: Policy, chat: ChatFormat, *, max_tokens: int = 256, temperature: float = 0.0) -> None:
        self.policy, self.chat = policy, chat
        self.calls = 0
        self._sampling = Sampling(max_tokens, temperature, stop_tokens=chat.stop_tokens)

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> str:
        """The reply; with a schema, valid under it unless the tokens ran out. A VerifierError if it cannot read so much."""
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
        return self.chat.parse(completion.tokens).content
