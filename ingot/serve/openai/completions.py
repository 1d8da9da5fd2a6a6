"""POST /v1/completions: continues a text without a chat template, whole or as a stream (answer.py).

The prompt is a text, several, or token ids. Choice j of prompt i has the number i·n + j. With `echo` the prompt comes
before the answer, and with `logprobs` too its own tokens are scored; `max_tokens: 0` then asks for the scores alone.
`prompt_logprobs` (vLLM's) gives the likeliest tokens by their ids: pieces of text cannot tell all tokens apart.
"""

from __future__ import annotations

from typing import Any, ClassVar

from starlette.requests import Request

from ingot.inference.runner import Chunk
from ingot.inference.text import TextStream
from ingot.serve.openai.answer import ApiEndpoint, SamplingPlan
from ingot.serve.openai.errors import ApiError
from ingot.serve.openai.generation import check_count, unless_gone
from ingot.serve.openai.logprobs import LogprobColumns, prompt_entries
from ingot.serve.openai.options import make_samplings
from ingot.serve.openai.replies import Heading
from ingot.serve.openai.requests import CompletionRequest
from ingot.serve.openai.scores import Score, score_prompts
from ingot.serve.openai.service import Service
from ingot.serve.openai.structures import answer_structure

DEFAULT_TOKENS = 16  # OpenAI's default of max_tokens on this endpoint


class CompletionEndpoint(ApiEndpoint):
    """One request for the continuation of texts."""

    prefix: ClassVar[str] = "cmpl"
    kind: ClassVar[str] = "text_completion"

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        super().__init__(service, body.model, body)
        self.body = body
        self.scores: list[list[Score]] = []  # of each prompt that was sent

    def generates(self) -> bool:
        return self.body.max_tokens != 0

    def read(self) -> SamplingPlan:
        service, body = self.service, self.body
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "stream_options needs stream: true", param="stream_options", code="invalid_value")
        if body.stream and body.prompt_logprobs is not None:
            raise ApiError(400, "prompt_logprobs needs stream: false", param="prompt_logprobs", code="invalid_value")
        if not self.generates() and not body.echo:
            message = "max_tokens is 0: nothing to do without echo"
            raise ApiError(400, message, param="max_tokens", code="invalid_value")
        given, each = split_prompts(body.prompt), body.n or 1
        if self.generates():
            check_count(service, len(given) * each)
        asked = [encode_prompt(service, prompt, "prompt") for prompt in given]
        plan = SamplingPlan([], [], answer_structure(body.response_format, body.structured_outputs), each)
        for tokens in asked:
            service.check_length(len(tokens), "prompt", answer=int(self.generates()))
            plan.prompts += [tokens] * each
            plan.samplings += make_samplings(
                service,
                body,
                room=max(1, service.length - len(tokens)),
                wanted=DEFAULT_TOKENS if body.max_tokens is None else max(1, body.max_tokens),
                ends=service.ends,
                top_logprobs=body.logprobs or 0,
            )
        return plan

    async def prepare(self, plan: SamplingPlan, request: Request) -> None:
        """Score the prompts, where their log-probabilities are asked for."""
        body = self.body
        if (body.echo and body.logprobs is not None) or body.prompt_logprobs is not None:
            likeliest = max(body.logprobs or 0, body.prompt_logprobs or 0)
            self.scores = await unless_gone(request, score_prompts(self.service.runner, plan.asked, likeliest))

    def choice(self, plan: SamplingPlan, heading: Heading, index: int) -> TextChoiceStream:
        return TextChoiceStream(self, plan, index)


def split_prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """A list of prompts, whichever way they were sent."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [item for item in prompt if isinstance(item, int)]
    return [ids] if ids else [item for item in prompt if not isinstance(item, int)]


def encode_prompt(service: Service, prompt: str | list[int], param: str) -> list[int]:
    """The tokens of a prompt; an empty text begins a document."""
    if isinstance(prompt, str):
        return [*service.tokenizer.opening, *service.tokenizer.encode(prompt)] or list(service.ends[:1])
    wrong = [token for token in prompt if token >= service.vocabulary]
    if wrong:
        message = f"token {wrong[0]} is not in the vocabulary of {service.vocabulary}"
        raise ApiError(400, message, param=param, code="invalid_value")
    return prompt


class TextChoiceStream:
    """One text as it comes."""

    reasoning_tokens = 0

    def __init__(self, endpoint: CompletionEndpoint, plan: SamplingPlan, index: int) -> None:
        self.body, self.index, self._tokenizer = endpoint.body, index, endpoint.service.tokenizer
        self.tokens = 0
        self.finish: str | None = None
        self._ends = plan.samplings[index].stop_tokens
        self._streams = bool(self.body.stream) and endpoint.generates()
        self._prompt = plan.prompts[index]
        self._scores = endpoint.scores[index // plan.each] if endpoint.scores else []
        self._text = TextStream(self._tokenizer, self.body.stops)
        self._pieces: list[str] = []
        self._shown = 0  # characters
        echoed = self._tokenizer.decode(self._prompt, skip_special=True) if self.body.echo else ""
        self._echo, self._offset = echoed, len(echoed)
        self._logprobs: LogprobColumns | None = None
        if self.body.logprobs is not None:
            self._logprobs = LogprobColumns(self._tokenizer, self.body.logprobs)
            before = TextStream(self._tokenizer)
            for token, score in zip(self._prompt, self._scores, strict=True) if self.body.echo else ():
                before.push(token)
                self._logprobs.add(token, before.start, *score)

    def opening(self) -> tuple[()]:
        return ()

    def take(self, chunk: Chunk) -> list[dict[str, Any]]:
        """The text of some more tokens, and why the choice has ended, if it has."""
        text, self._echo = self._echo, ""
        for number, token in enumerate(chunk.tokens):
            at_end = chunk.finish == "stop" and number == len(chunk.tokens) - 1
            self.tokens += 1
            if at_end and token in self._ends:
                break
            text += self._text.push(token)
            if self._logprobs is not None:
                top = next(iter(chunk.top_logprobs[number:]), ())
                self._logprobs.add(token, self._offset + self._text.start, chunk.logprobs[number], top)
            if self._text.stopped:
                break
        if chunk.last or self._text.stopped:
            text += self._text.finish()
            self.finish = "stop" if self._text.stopped or chunk.finish == "stop" else "length"
        self._pieces.append(text)
        self._shown += len(text)
        return [self._entry(text)] if self._streams and (text or self.finish is not None) else []

    def _entry(self, text: str) -> dict[str, Any]:
        """The choice with this piece of its text."""
        everything = self.finish is not None and not self._text.stopped
        logprobs = self._logprobs.take(None if everything else self._shown) if self._logprobs is not None else None
        return {"index": self.index, "text": text, "logprobs": logprobs, "finish_reason": self.finish}

    def whole(self) -> dict[str, Any]:
        entry = self._entry("".join(self._pieces))
        if self.body.prompt_logprobs is None:
            return entry
        return entry | {"prompt_logprobs": prompt_entries(self._tokenizer, self._prompt, self._scores)}
