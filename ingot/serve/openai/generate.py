"""POST /inference/v1/generate: tokens in, tokens out (answer.py).

What trains a model must see exactly the tokens that the model saw and wrote; text that is encoded again may have others. The
form is vLLM's, which `verifiers` and prime-rl speak: token ids, sampling options in a mapping of their own, and for each token
that was written its id and its log-probability at temperature 1. The stop token is among them, if one was drawn.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ingot.inference.runner import Chunk
from ingot.serve.openai.answer import ApiEndpoint, SamplingPlan
from ingot.serve.openai.completions import encode_prompt
from ingot.serve.openai.options import make_samplings
from ingot.serve.openai.replies import Heading
from ingot.serve.openai.requests import GenerateRequest
from ingot.serve.openai.service import Service

DEFAULT_TOKENS = 16  # vLLM's default of max_tokens


class GenerateEndpoint(ApiEndpoint):
    """One request for tokens."""

    prefix: ClassVar[str] = "gen"
    kind: ClassVar[str] = "generate"

    def __init__(self, service: Service, body: GenerateRequest) -> None:
        super().__init__(service, body.model, body.sampling_params)
        self.tokens = body.token_ids

    def read(self) -> SamplingPlan:
        service, options = self.service, self.options
        prompt = encode_prompt(service, self.tokens, "token_ids")
        service.check_length(len(prompt), "token_ids")
        samplings = make_samplings(
            service,
            options,
            room=service.length - len(prompt),
            wanted=DEFAULT_TOKENS if options.max_tokens is None else max(1, options.max_tokens),
            ends=service.ends,
            top_logprobs=0,
        )
        return SamplingPlan([prompt] * len(samplings), samplings, each=len(samplings))

    def choice(self, plan: SamplingPlan, heading: Heading, index: int) -> TokenChoiceStream:
        return TokenChoiceStream(index)

    def finished(self, whole: dict[str, Any]) -> dict[str, Any]:
        return whole | {"request_id": whole["id"], "prompt_token_ids": self.tokens}


class TokenChoiceStream:
    """One answer as it comes; a token stands there by its id, since a piece of a character is no text."""

    reasoning_tokens = 0

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish: str | None = None
        self._written = Chunk()

    @property
    def tokens(self) -> int:
        return len(self._written.tokens)

    def opening(self) -> tuple[()]:
        return ()

    def take(self, chunk: Chunk) -> tuple[()]:
        self._written.tokens += chunk.tokens
        self._written.logprobs += chunk.logprobs
        if chunk.last:
            self.finish = "stop" if chunk.finish == "stop" else "length"
        return ()

    def whole(self) -> dict[str, Any]:
        entries: list[dict[str, Any]] = [
            {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in zip(self._written.tokens, self._written.logprobs, strict=True)
        ]
        choice = {"index": self.index, "token_ids": self._written.tokens, "logprobs": {"content": entries}}
        return choice | {"finish_reason": self.finish}
