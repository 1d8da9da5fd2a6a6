"""Remembers answers by (model, tokens, sampling), so that nothing is computed twice: not after a kill, not by another suite.

    answers/MODEL.jsonl     {"key", "tokens", "logprobs", "finish"} of a text, {"key", "scores"} of likelihoods

MODEL is a checksum of the weights, their precision, the model's description and its tokenizer: other weights, other file. A key
is a hash of the tokens that were given and of everything that decides what is drawn, the seed among it, so a remembered sample
is the one that would be drawn again. A line that a kill has cut short is left out and computed again.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from ingot.inference.sampling import Sampling

if TYPE_CHECKING:
    from ingot.inference.engine import Engine
    from ingot.inference.request import Finish, Request

FLUSH_EVERY = 64  # answers: what a kill may cost


def model_name(engine: Engine) -> str:
    """The name of a model by all that decides its answers."""
    model = engine.model
    digest = hashlib.sha256(f"{engine.checksum:x}/{model.embedding.weight.dtype}".encode())
    digest.update(model.config.model_dump_json().encode())
    if model.tokenizer is not None:
        digest.update(model.tokenizer.to_files()["tokenizer.json"])
    return digest.hexdigest()[:24]


def text_key(prompt: Sequence[int], sampling: Sampling) -> str | None:
    """The key of a text; None if its form cannot be told by its values."""
    if sampling.constraint is not None:
        return None
    values = [getattr(sampling, each.name) for each in fields(sampling) if each.name != "constraint"]
    if sampling.temperature == 0:
        values = [value for each, value in zip(fields(sampling), values, strict=False) if each.name != "seed"]
    return _key("text", prompt, values)


def score_key(tokens: Sequence[int], first: int, lasts: Sequence[int]) -> str:
    """The key of scores."""
    return _key("scores", tokens[:-1], [first, list(lasts)])


def _key(kind: str, tokens: Sequence[int], values: Sequence[Any]) -> str:
    digest = hashlib.sha256(array("l", tokens).tobytes())
    digest.update(json.dumps([kind, *values]).encode())
    return digest.hexdigest()[:32]


class AnswerMemory:
    """The answers of one model in a file; None: they are kept for this run alone."""

    def __init__(self, path: Path | None) -> None:
        self._answers: dict[str, dict[str, Any]] = {}
        self._file: TextIO | None = None
        self._unsaved = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._load(path) if path.exists() else 0
            self._file = path.open("a", encoding="utf-8")
            self._file.truncate(whole)

    def _load(self, path: Path) -> int:
        """Read the answers; how many bytes of the file are whole lines."""
        whole = 0
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                row = json.loads(line)
                self._answers[row.pop("key")] = row
        return whole

    def find(self, key: str | None) -> dict[str, Any] | None:
        """The answer of this key, if it is known."""
        return None if key is None else self._answers.get(key)

    def keep(self, key: str | None, answer: dict[str, Any]) -> None:
        """Remember an answer."""
        if key is None:
            return
        self._answers[key] = answer
        if self._file is not None:
            self._file.write(json.dumps({"key": key, **answer}) + "\n")
            self._unsaved += 1
            if self._unsaved >= FLUSH_EVERY:
                self._file.flush()
                self._unsaved = 0

    def __enter__(self) -> AnswerMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(eq=False)
class Remembered:
    """A text that was known: it has ended before it began."""

    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: Finish | None
    waiting: bool = False


class RememberingEngine:
    """An engine that looks into the memory first; a policy of rollouts (envs/rollout/policies.py)."""

    def __init__(self, engine: Engine, memory: AnswerMemory) -> None:
        self.engine, self.memory = engine, memory
        self.found = 0  # answers that were known
        self._open: list[tuple[Request, str | None]] = []

    def submit(self, prompt: list[int], sampling: Sampling, *, follows: Any = None) -> Request | Remembered:
        """A text, from the memory or on its way."""
        key = text_key(prompt, sampling)
        known = self.memory.find(key)
        if known is not None:
            self.found += 1
            tokens = known["tokens"]
            return Remembered(tokens, known["logprobs"], [self.engine.version] * len(tokens), known["finish"])
        request = self.engine.submit(prompt, sampling, follows=None if isinstance(follows, Remembered) else follows)
        self._open.append((request, key))
        return request

    def complete(self, prompts: list[list[int]], samplings: list[Sampling]) -> list[Request | Remembered]:
        """The texts of all prompts."""
        asked = [self.submit(*pair) for pair in zip(prompts, samplings, strict=True)]
        while any(each.finish is None for each in asked):
            self.step()
        return asked

    def step(self) -> None:
        """One step of the engine; what has ended is remembered."""
        if self.engine.busy:
            self.engine.step()
        ended = [(request, key) for request, key in self._open if request.finish is not None]
        if ended:
            self._open = [(request, key) for request, key in self._open if request.finish is None]
            for request, key in ended:
                if request.finish in ("stop", "length"):
                    logprobs = [round(value, 5) for value in request.logprobs]
                    answer = {"tokens": request.tokens, "logprobs": logprobs, "finish": request.finish}
                    self.memory.keep(key, answer)

    def cancel(self, request: Request | Remembered) -> None:
        """Give up a text."""
        if not isinstance(request, Remembered):
            self.engine.cancel(request)
