"""What a verifiable instruction is, and how one is found by its published id.

The id `family:name` names a function of the file of that family; its parameters are the published `kwargs`:

    @instruction("length_constraints:number_words")
    def number_words(answer: str, num_words: int, relation: Relation) -> bool: ...

A recipe may also name a function of its own, `file.py:function`. Checkers are total: any text gives True or False, in time that
grows with its length, not with its square. Published checkers take some keywords for regular expressions and replace missing
values by random ones; here text is text, and a missing value is an error of the row.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ingot.workspace.errors import DataError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import is_outside, load_outside

Relation = Literal["less than", "at least"]
Position = Annotated[int, Field(ge=1)]
PACKAGE = "ingot.envs.verifiers.instructions"
_CHECKERS: dict[str, Callable[..., bool]] = {}
_NO_FAMILIES = ("instruction", "follow")


@dataclass(frozen=True)
class Instruction:
    """One instruction with its parameters: `follows(answer)` says whether an answer obeys it."""

    id: str
    check: Callable[..., bool]
    kwargs: Mapping[str, Any]

    def follows(self, answer: str) -> bool:
        """A blank answer follows nothing."""
        return bool(answer.strip()) and self.check(answer, **self.kwargs)


def instruction(id: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Enter a checker under its published id."""

    def enter(check: Callable[..., bool]) -> Callable[..., bool]:
        _CHECKERS[id] = check
        return check

    return enter


def instruction_ids() -> list[str]:
    """The ids of all built-in instructions."""
    package = importlib.import_module(PACKAGE)
    for found in pkgutil.iter_modules(package.__path__):
        if found.name not in _NO_FAMILIES:
            importlib.import_module(f"{PACKAGE}.{found.name}")
    return sorted(_CHECKERS)


def find_instruction(id: str, kwargs: Mapping[str, Any] | None = None, place: str | None = None) -> Instruction:
    """The instruction of a row's id and kwargs; nulls among the kwargs are left out, as data sets fill them in."""
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}
    check = _CHECKERS.get(id) or _load(id, place)
    try:
        return Instruction(id, check, dict(_parameters(check).model_validate(given)))
    except ValidationError as error:
        wrong = "; ".join(f"{one['loc'][0]}: {one['msg'].lower()}" for one in error.errors(include_url=False))
        wanted = ", ".join(_parameters(check).model_fields) or "none"
        raise DataError(f"{id}: {wrong}", place=place, fix=f"its kwargs are {wanted}") from None


def compare(number: int, relation: Relation, threshold: int) -> bool:
    """IFEval's two relations."""
    return number < threshold if relation == "less than" else number >= threshold


def _load(id: str, place: str | None) -> Callable[..., bool]:
    ids = instruction_ids()
    if id in _CHECKERS:
        return _CHECKERS[id]
    if is_outside(id) and id.partition(":")[0] not in {known.partition(":")[0] for known in ids}:
        loaded: Callable[..., bool] = load_outside(id, place=place)
        return loaded
    raise DataError(f"there is no instruction {id}", place=place, fix=suggestion(id, ids, "instructions"))


@cache
def _parameters(check: Callable[..., bool]) -> type[BaseModel]:
    """The kwargs of a checker as a model: whole numbers may be written 5.0, as some data sets store them."""
    hints = get_type_hints(check, include_extras=True)
    fields: dict[str, Any] = {
        one.name: (hints.get(one.name, Any), ... if one.default is one.empty else one.default)
        for one in list(inspect.signature(check).parameters.values())[1:]
    }
    return create_model(check.__name__, __config__=ConfigDict(extra="forbid"), **fields)
