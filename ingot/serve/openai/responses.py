"""Shapes of the server's answers, for /openapi.json.

The answers themselves are plain dictionaries, since a streaming server writes thousands of them a second; the tests check
them against these shapes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class ErrorBody(BaseModel):
    """The problem, the field it is in, and a code for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """The body of every answer that is not 200."""

    error: ErrorBody


class PromptDetails(BaseModel):
    """`cached_tokens`: tokens of the prompt that need not be computed, because an earlier one began alike."""

    cached_tokens: int


class CompletionDetails(BaseModel):
    """`reasoning_tokens`: tokens of the answer that are reasoning."""

    reasoning_tokens: int


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class TopLogprob(BaseModel):
    """A token that could have stood here."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """One entry for each token of the content."""

    content: list[TokenLogprob]


class Called(BaseModel):
    """A tool's name, and its arguments as the text of a JSON object."""

    name: str
    arguments: str


class Call(BaseModel):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: Called


class AnswerMessage(BaseModel):
    """The answer of the model; reasoning under both names that clients look for."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None


Finish = Literal["stop", "length", "tool_calls"]


class ChatChoice(BaseModel):
    """One of `n` answers."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(BaseModel):
    """The answer of POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class TextLogprobs(BaseModel):
    """One entry for each token of the text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(BaseModel):
    """One of `n` texts for one of the prompts."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]


class TextCompletion(BaseModel):
    """The answer of POST /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class TokenEntry(BaseModel):
    """A token that was written; `token` is token_id:NUMBER."""

    token: str
    logprob: float
    bytes: None
    top_logprobs: list[None]


class TokenEntries(BaseModel):
    """The tokens of a choice."""

    content: list[TokenEntry]


class TokenChoice(BaseModel):
    """Tokens that go on from those given."""

    index: int
    token_ids: list[int]
    logprobs: TokenEntries
    finish_reason: Literal["stop", "length"]


class TokenCompletion(BaseModel):
    """The answer of POST /inference/v1/generate."""

    id: str
    request_id: str
    object: Literal["generate"]
    created: int
    model: str
    prompt_token_ids: list[int]
    choices: list[TokenChoice]
    usage: Usage


class ModelCard(BaseModel):
    """The model that is served; `max_model_len` is the most tokens of a prompt and its answer together."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(BaseModel):
    """The answer of GET /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(BaseModel):
    """The answer of GET /health."""

    status: Literal["ok"]


class Tokens(BaseModel):
    """The answer of POST /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Pooled(BaseModel):
    """What a reward model gives for one text."""

    index: int
    object: Literal["pooling"]
    data: list[float]  # one number


class PoolingList(BaseModel):
    """The answer of POST /pooling."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class Detokenized(BaseModel):
    """The answer of POST /detokenize."""

    prompt: str
