"""State that all endpoints share: the runner, the tokenizer, the chat format, and the limits of the server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ingot.inference.runner import EngineRunner
from ingot.inference.sampling import TextConstraint
from ingot.inference.structure.constraint import cached_constraint, compile_grammar
from ingot.inference.structure.errors import StructureError
from ingot.serve.hosts import Hosts
from ingot.serve.openai.errors import ApiError, refused
from ingot.serve.openai.metrics import Metrics
from ingot.serve.openai.structures import Structure
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import GENERATION_CONFIG, Tokenizer
from ingot.workspace.errors import ArtifactError

COMPILERS = 2  # threads
Found = TypeVar("Found")
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # that a model's files may set


@dataclass
class Service:
    """One model behind one runner."""

    runner: EngineRunner
    tokenizer: Tokenizer
    name: str
    key: str | None = None
    hosts: Hosts | None = None  # the names that it answers to; None: any
    deadline: float | None = 600.0  # seconds after which an answer is cut off
    body_limit: int = 16 * 2**20  # bytes
    metrics: Metrics = field(default_factory=Metrics)
    created: int = field(default_factory=lambda: int(time.time()))
    log: Callable[[str], None] | None = None  # takes a line for each request that was answered
    compile_limit: float = 20.0  # seconds that the compiling of a structure may take, the wait for its turn included

    def __post_init__(self) -> None:
        self._compilers = ThreadPoolExecutor(COMPILERS, "ingot-compile")

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
        """The sampling options of the model's own files (generation_config.json)."""
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

    async def constraint(self, structure: Structure) -> TextConstraint:
        """A structure, compiled in a thread and cached for the next request; one that cannot be compiled is a 400.

        Few threads compile, and requests without a new structure do not wait for them. A structure whose turn does not come
        within `compile_limit` is a 429.
        """
        cached = self._constraint(structure, cached_constraint)
        if cached is not None:
            return cached
        work = self._compilers.submit(self._constraint, structure, compile_grammar)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), self.compile_limit)
        except TimeoutError as error:
            raise self._too_slow(started=not work.cancelled()) from error

    def _constraint(self, structure: Structure, find: Callable[[str, Tokenizer], Found]) -> Found:
        """The result of `find` for the grammar; if it is refused, the error names the field of the request that is wrong."""
        try:
            return find(structure.grammar, self.tokenizer)
        except StructureError as error:
            for grammar, param in structure.parts():
                try:
                    find(grammar, self.tokenizer)
                except StructureError as own:
                    raise refused(own, param=param, code="invalid_schema") from own
            raise refused(error, code="invalid_schema") from error

    def _too_slow(self, *, started: bool) -> ApiError:
        if started:
            message = f"the structure takes more than {self.compile_limit:g} s to compile; give a simpler one"
            return ApiError(400, message, code="invalid_schema")
        message = "many structures are waiting to be compiled; try again later"
        return ApiError(429, message, code="queue_full", headers={"Retry-After": "5"})
