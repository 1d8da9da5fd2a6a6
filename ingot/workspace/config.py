"""The base of every typed configuration, and the hash that names a piece of work.

A config is immutable, refuses keys it does not know, and documents each field where it is declared; the reference in
docs/ is generated from these classes. Config modules import nothing heavy, except in model/, where options are in the file
of their module: a recipe without a model is checked without loading torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Base class of every configuration: frozen, strict about unknown keys, default values validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    how: ClassVar[frozenset[str]] = frozenset()
    """Fields that say how the work is done (where, on how many processes, how often it is saved), not what it is."""

    moved: ClassVar[Mapping[str, str]] = {}
    """Keys that were options once, and what to write instead: the fix of the error that recipe/validate.py gives."""

    def work(self) -> dict[str, Any]:
        """The configuration without `how`: what a stage's hash is made of, so that a run resumes on another layout."""
        return self.model_dump(mode="json", exclude=self._excluded())

    def _excluded(self) -> dict[str, Any]:
        """`how`, also of configs within this one, as pydantic excludes it."""
        within = {name: value._excluded() for name, value in self if isinstance(value, Config)}
        return {name: inner for name, inner in within.items() if inner} | dict.fromkeys(self.how, True)

    def outside(self) -> dict[str, str]:
        """Fingerprints by name of what the work reads besides this config and its inputs.

        It is part of the stage's hash, so that a changed data file is work to do again, not a result to reuse.
        """
        return {}

    def supplies(self) -> frozenset[str]:
        """Inputs of the stage that these options stand in for, so that a recipe need not name them."""
        return frozenset()

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """What cannot be honoured when the stage has these inputs, by role: the option, why, and what to do."""
        yield from ()

    def chosen(self, *options: str) -> list[str]:
        """Those of these options that ask for something else than their default, which a stage's recipe.yaml spells out."""
        fields = type(self).model_fields
        return [
            name
            for name in options
            if name in self.model_fields_set
            and getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]

    def unread(self, *options: str, because: str, instead: str = "", at: str = "") -> Iterator[str]:
        """The problem in words, if one of these options, which nothing would read, was chosen, and what to do.

        `at` is where this config stands within its stage's, with the dot.
        """
        if idle := self.chosen(*options):
            left = f"leave {'it' if len(idle) == 1 else 'them'} out" + (f", or {instead}" if instead else "")
            yield f"{', '.join(at + name for name in idle)}: {because}; {left}"

    def refuse(self, *options: str, because: str, instead: str = "") -> None:
        """Raise ValueError if one of these options was chosen."""
        for problem in self.unread(*options, because=because, instead=instead):
            raise ValueError(problem)


def content_hash(value: Any, digits: int = 12) -> str:
    """A short stable hash of any JSON-like value or config: the same content gives the same name on every machine."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:digits]
