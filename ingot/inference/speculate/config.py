"""Options of speculative decoding: how tokens are drafted, and how many. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ingot.workspace.errors import IngotError

Kind = Literal["auto", "ngram", "mtp"]


@dataclass(frozen=True)
class Speculation:
    """`ngram`: what followed the same tokens before; `mtp`: the model's multi-token module; `auto`: the latter if it has one."""

    kind: Kind = "auto"
    tokens: int = 4  # drafted for a row, at most
    longest: int = 4  # n-gram that is looked up; the longest that is found counts
    shortest: int = 2

    def __post_init__(self) -> None:
        if self.kind not in ("auto", "ngram", "mtp"):
            raise _refused("kind", self.kind, "give auto, ngram or mtp")
        if self.tokens < 1:
            raise _refused("tokens", self.tokens, "draft 1 or more; speculate=None drafts nothing")
        if not 1 <= self.shortest <= self.longest:
            raise _refused("shortest", self.shortest, f"give 1 to longest, which is {self.longest}")

    def uses_module(self, *, has_module: bool) -> bool:
        """Whether the drafts come from the model's multi-token module, if it has one."""
        if self.kind == "mtp" and not has_module:
            raise _refused("kind", self.kind, "use ngram: the model has no multi-token module")
        return has_module and self.kind != "ngram"


def _refused(field: str, value: object, fix: str) -> IngotError:
    return IngotError(f"{field} is {value}", place="speculate", fix=fix)
