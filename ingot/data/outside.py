"""Finds steps by name: a file of steps/, a class of your own (`file.py:Mine`, `package.module:Mine`), or one function on a text.

    def long_enough(text: str, words: int = 50) -> bool:      {step: my_steps.py:long_enough, words: 20}
        return len(text.split()) >= words

What a function returns says what it does; its other parameters are the options of the step, with their types and defaults.

    bool           False removes the document; the reason is the function's name
    str            the text of the document from now on
    float, int     a column of this name
    dict           a column of this name, as JSON

A class of your own derives from `PerDocument` or `AcrossDocuments` (step.py). The content of the file is part of the hash of
what it computes, and worker processes load it from its path.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, ClassVar, get_type_hints

import pyarrow
import pyarrow.compute
from pydantic import Field, create_model

from ingot.data.step import PerDocument, Rule, Step
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.kinds import Kinds

RETURNS: dict[Any, str] = {bool: "bool", str: "string", float: "double", int: "double", dict: "string"}  # of Arrow
HOW = "def NAME(text: str, option: int = 3) -> bool (or str, float, dict)"


class FunctionStep(PerDocument):
    """A step that calls one function on every text. A subclass for each function is made by `step_of`."""

    function: ClassVar[Callable[..., Any]]
    returns: ClassVar[type]
    spec: ClassVar[str]

    @classmethod
    def kind_name(cls) -> str:
        return cls.spec

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "id")

    def writes(self) -> tuple[str, ...]:
        return ({str: "text", bool: f"_{self.short_name}"}.get(self.returns, self.short_name),)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        options = {name: getattr(self, name) for name in type(self).model_fields if name not in Step.model_fields}
        texts, ids = (documents.column(name).to_pylist() for name in ("text", "id"))
        found = [self.call(text, name, options) for text, name in zip(texts, ids, strict=True)]
        kind = pyarrow.large_string() if self.returns is str else pyarrow.type_for_alias(RETURNS[self.returns])
        return {self.writes()[0]: pyarrow.array(found, kind)}

    def call(self, text: str, document: str, options: dict[str, Any]) -> Any:
        """What the function gives for one text; what it raises is said with the document."""
        place = f"step {self.spec}, document {document}"
        try:
            found = type(self).function(text, **options)
        except Exception as error:  # code of the user's, which may raise anything
            fix = f"the text begins {text[:60]!r}"
            raise DataError(
                f"{self.short_name} raised {type(error).__name__}: {error}", place=place, fix=fix
            ) from error
        if not isinstance(found, (float, int) if self.returns in (float, int) else self.returns):
            said = f"{self.short_name} returned {type(found).__name__}, not {self.returns.__name__} as it says"
            raise DataError(said, place=place)
        return json.dumps(found, ensure_ascii=False, sort_keys=True) if self.returns is dict else found

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        if self.returns is not bool:
            return []
        stays = columns.column(self.writes()[0]).fill_null(True)
        return [Rule(self.short_name, pyarrow.compute.invert(stays).to_numpy().astype(bool))]

    def __reduce__(self) -> Any:
        """Pickled as its options: the class is made again from the file."""
        return read_step, (self.model_dump(),)


def step_of(function: Callable[..., Any], spec: str) -> type[FunctionStep]:
    """The step that a function is, with its parameters as options."""
    name = spec.rpartition(":")[2]
    parameters = list(inspect.signature(function).parameters.values())
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise RecipeError(f"{spec}: a type of its signature is not known: {error}", fix=f"write {HOW}") from None
    result = getattr(hints.get("return"), "__origin__", hints.get("return"))
    if result not in RETURNS or not parameters:
        raise RecipeError(f"{spec} does not say what it returns for a text", fix=f"write {HOW}")
    fields: dict[str, Any] = {}
    for one in parameters[1:]:
        named = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if not named or one.name not in hints or hasattr(FunctionStep, one.name) or one.name in Step.model_fields:
            problem = f"{spec}: its parameter {one.name} cannot be an option: it needs a type and a name of its own"
            raise RecipeError(problem, fix=f"write {HOW}")
        default = ... if one.default is one.empty else one.default
        fields[one.name] = (hints[one.name], Field(default, description=f"option of {name}"))
    made = create_model(name, __base__=FunctionStep, __doc__=function.__doc__, __module__=function.__module__, **fields)
    made.function, made.returns, made.spec = staticmethod(function), result, spec  # type: ignore[assignment]
    return made


class StepKinds(Kinds[Step]):
    """The table of steps; a function from outside is a step, too."""

    def adopt(self, thing: Any, spec: str) -> type[Step]:
        return step_of(thing, spec) if inspect.isfunction(thing) else super().adopt(thing, spec)


STEPS = StepKinds(Step, "data step")  # type: ignore[type-abstract]


def read_step(options: dict[str, Any]) -> Step:
    """A step of its options, as a recipe writes them."""
    return STEPS.read(options)
