"""Request bodies of OpenAI's API, with the additions that vLLM introduced (top_k, min_p …).

Pydantic checks them and describes them in /openapi.json: strictly, so that "true" is no truth value and "1" no number. A
field that does not exist is an error, with the nearest right name: a misspelt `temprature` would otherwise be ignored in
silence. Messages are the exception, since clients send back what they got, with whatever fields their library adds.

Lists of any length are looked at up to the first mistake (`fail_fast`): a complaint takes some 2 kB, and 16 MiB hold
millions of mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Text = Annotated[str, StringConstraints(min_length=1)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
TokenIds = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
TokenKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
Integer64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Schema = dict[str, Any] | bool
MOST_STOPS, MOST_CHOICES, MOST_LOGPROBS = 64, 128, 20
MOST_PROMPT_LOGPROBS = 256  # what teaches a student by its likeliest tokens gives 64 of them or more
MOST_BIASES = 1 << 16
LONGEST_NAME = 80  # characters of an unknown field that are looked at


class Strict(BaseModel):
    """A body in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for name in value if isinstance(value, Mapping) else ():
            if name not in known:
                shown = str(name)[:LONGEST_NAME]
                near = get_close_matches(shown, known, n=1)
                raise ValueError(f"unknown field {shown!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return value


class Lenient(BaseModel):
    """A part in which unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=True)


# ---- messages


class TextPart(Lenient):
    """A part of a message; there are only texts."""

    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], Field(fail_fast=True)]


class TextMessage(Lenient):
    """The fields that system, developer and user messages have in common."""

    content: Content
    name: str | None = None


class SystemMessage(TextMessage):
    """Instructions."""

    role: Literal["system", "developer"]


class UserMessage(TextMessage):
    """A message of the user."""

    role: Literal["user"]


class CalledFunction(Lenient):
    """The name of a tool, and its arguments as the text of a JSON object."""

    name: str
    arguments: str


class PastCall(Lenient):
    """A tool call that the model made earlier."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(Lenient):
    """An earlier answer of the model; its reasoning may be sent back under either name."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[PastCall], Field(fail_fast=True)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(Lenient):
    """The result of the tool call `tool_call_id`."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


ChatMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
Messages = Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]


# ---- tools and structured output


class Function(Lenient):
    """A tool: `strict` holds its arguments to the schema also where the model calls it by its own choice."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


class NamedFunction(Lenient):
    """The name of the tool that must be called."""

    name: str


class NamedTool(Lenient):
    """`tool_choice` that names a tool."""

    type: Literal["function"]
    function: NamedFunction


class TextFormat(Strict):
    """Any text."""

    type: Literal["text"]


class JsonFormat(Strict):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Strict):
    """A JSON schema; the name and the description are not shown to the model."""

    name: str | None = None
    description: str | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = None


class SchemaFormat(Strict):
    """JSON that a schema admits."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]


class StructuredOutputs(Strict):
    """Exactly one of: a JSON schema, a regular expression, a list of texts to choose from."""

    json_: Schema | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[Text] | None = Field(None, min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(value is not None for value in (self.json_, self.regex, self.choice)) != 1:
            raise ValueError("give exactly one of json, regex and choice")
        return self


# ---- the bodies


class StreamOptions(Strict):
    """`include_usage`: a last event with the counts and no choices; `continuous_usage_stats`: counts in each event."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Generating(Strict):
    """The fields that chat and text completions have in common; null is the default everywhere."""

    model: str | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=0, le=2**31 - 1)
    min_tokens: int | None = Field(None, ge=0, le=2**31 - 1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1, description="-1 and 0: every token")
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    logit_bias: dict[TokenKey, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: Integer64 | None = None
    stop: Text | Annotated[list[Text], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MOST_STOPS)] | None = None
    ignore_eos: bool | None = Field(None, description="go on past the model's own end")
    structured_outputs: StructuredOutputs | None = None
    user: str | None = Field(None, description="taken and not used, as the other fields of this kind")
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and len(value) > MOST_BIASES:
            raise ValueError(f"{len(value):,} tokens; give at most {MOST_BIASES:,}")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class TemplateOptions(Strict):
    """Options of a chat template."""

    enable_thinking: bool | None = None


class ChatRequest(Generating):
    """The body of POST /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    max_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = Field(None, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        None, description="none switches thinking off; the other values leave it on"
    )
    chat_template_kwargs: TemplateOptions | None = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None


class CompletionRequest(Generating):
    """The body of POST /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | TokenIds
        | Annotated[list[TokenIds], Field(min_length=1, fail_fast=True)]
    )
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    prompt_logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_PROMPT_LOGPROBS,
        description="score the prompt's own tokens, and give so many likeliest, by their ids",
    )
    suffix: str | None = Field(None, max_length=0, description="not supported")
    best_of: int | None = Field(None, ge=1, le=1, description="1 at most; ask for n choices instead")
    response_format: ResponseFormat | None = None


class TokenSampling(Generating):
    """The sampling options of POST /inference/v1/generate, as vLLM calls them."""

    stream: Literal[False] | None = None
    stop: None = Field(None, description="stop strings need text: give stop_token_ids")
    logprobs: int | None = Field(None, ge=0, le=1, description="1 or 0: log-probabilities always come")
    skip_special_tokens: bool | None = Field(None, description="taken and not used: there is no text")
    spaces_between_special_tokens: bool | None = None
    detokenize: bool | None = None


class GenerateRequest(Strict):
    """The body of POST /inference/v1/generate: token ids to go on from."""

    model: str | None = None
    token_ids: TokenIds
    sampling_params: TokenSampling = TokenSampling()
    cache_salt: str | None = Field(
        None, description="taken and not used: pages are shared between requests of one version"
    )
    priority: int | None = Field(None, description="taken and not used: first come, first served")


class TokenizeRequest(Strict):
    """The body of POST /tokenize: a text, or messages as the model would read them."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: list[Tool] | None = Field(None, max_length=128)
    chat_template_kwargs: TemplateOptions | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class PoolingRequest(Strict):
    """The body of POST /pooling: texts, token ids, or a conversation that ends with the answer to be judged."""

    model: str | None = None
    input: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=2048, fail_fast=True)]
        | TokenIds
        | Annotated[list[TokenIds], Field(min_length=1, max_length=2048, fail_fast=True)]
        | None
    ) = None
    messages: Messages | None = None
    tools: list[Tool] | None = Field(None, max_length=128)
    task: Literal["classify"] | None = Field(None, description="what vLLM calls it")
    encoding_format: Literal["float"] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either input or messages")
        return self


class DetokenizeRequest(Strict):
    """The body of POST /detokenize."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True)]
