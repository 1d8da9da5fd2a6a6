"""What the endpoints share: the runner, the tokenizer, the chat format, and the limits of the server."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ingot.inference.runner import EngineRunner
from ingot.inference.sampling import Constraint
from ingot.inference.structure.constraint import compile_choice, compile_json, compile_regex, compile_schema
from ingot.serve.openai.errors import ApiError, refused
from ingot.serve.openai.metrics import Metrics
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import GENERATION_CONFIG, Tokenizer
from ingot.workspace.errors import ArtifactError, IngotError

StructureKind = Literal["json", "schema", "choice", "regex"]
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # that a model's files may set


@dataclass
class Service:
    """One model behind one runner."""

    runner: EngineRunner
    tokenizer: Tokenizer
    name: str
    key: str | None = None
    deadline: float | None = 600.0  # seconds after which an answer is cut off
    body_limit: int = 16 * 2**20  # bytes
    metrics: Metrics = field(default_factory=Metrics)
    created: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def chat(self) -> ChatFormat | None:
        """The layout of conversations; None for a model that was not made for them."""
        return ChatFormat(self.tokenizer) if self.tokenizer.chat_template is not None else None

    @cached_property
    def length(self) -> int:
        """The most tokens that a prompt and its answer may have together."""
        return self.runner.engine.length

    @cached_property
    def vocabulary(self) -> int:
        """The number of ids that the model reads and writes."""
        return self.runner.engine.model.config.vocabulary_size or self.tokenizer.vocabulary_size

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text; none if the model's files name none."""
        try:
            return self.tokenizer.ends
        except ArtifactError:
            return ()

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What the model's own files (generation_config.json) say about sampling."""
        found = json.loads(self.tokenizer.files.get(GENERATION_CONFIG, b"{}"))
        return {name: found[name] for name in DEFAULTS if isinstance(found.get(name), int | float)}

    def check_model(self, name: str | None) -> None:
        """Refuse another model's name."""
        if name is not None and name != self.name:
            message = f"the model {name!r} does not exist; this server has {self.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def check_length(self, tokens: int, param: str, answer: int = 1) -> None:
        """Refuse a prompt that leaves no room for so many tokens of an answer."""
        if tokens + answer > self.length:
            message = f"the model's context is {self.length} tokens, the prompt has {tokens}; shorten it"
            raise ApiError(400, message, param=param, code="context_length_exceeded")

    def structure(self, kind: StructureKind, value: Any, param: str) -> Constraint:
        """A compiled structure, which is kept for the next request; a bad one is a 400."""
        try:
            match kind:
                case "json":
                    return compile_json(self.tokenizer)
                case "schema":
                    return compile_schema(value, self.tokenizer)
                case "choice":
                    return compile_choice(value, self.tokenizer)
                case "regex":
                    return compile_regex(value, self.tokenizer)
        except IngotError as error:
            raise refused(error, param=param, code="invalid_schema") from error
        except RecursionError as error:
            raise ApiError(400, "the schema is nested too deeply", param=param, code="invalid_schema") from error
