"""Finds what recipes name by kind (steps, tasks, suites …): a built-in file of that name, or the user's `file.py:Name`.

A kind is a class that derives from `Kind`: its fields are the options that a recipe gives, its methods do the work. An entry of
a recipe is a mapping with the kind under a key (`{suite: needle, count: 4}`), or just the name (`needle`). A field of a config
that holds such entries is annotated with the table of its kinds:

    class Suite(Kind): key, package = "suite", "ingot.evals.suites"
    SUITES = Kinds(Suite, "eval suite")
    suites: tuple[Annotated[Suite, SUITES], ...]

To add a built-in kind is to add a file; nothing else lists it. Files of kinds import torch and the like inside their methods,
so that a recipe is read without them.

Parts of a model and optimizers are kinds too (`Part`), named by the key `kind`. A `Parts` lists them:

    MIXERS = Parts(MixerConfig, "mixer", (AttentionConfig, MlaConfig), default="attention")
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import adopt, is_from_outside, is_kind, is_outside, load_outside, spec_of

WRONG_KIND = "wrong_kind"
"""pydantic's type for the error of a kind that is not there or cannot be loaded; ctx has `problem` and `fix`."""


class Kind(Config):
    """The base of a family of kinds. `key` is where an entry names its kind, `package` has the built-in ones."""

    key: ClassVar[str] = ""
    package: ClassVar[str] = ""

    @classmethod
    def kind_name(cls) -> str:
        """The name by which a recipe finds this class."""
        inside, _, name = cls.__module__.rpartition(".")
        return name if inside == cls.package else spec_of(cls)

    @property
    def short_name(self) -> str:
        """Its name in metrics, ids and messages: a built-in kind's file, another one's class in lower case, without its path."""
        name = self.kind_name()
        return name if ":" not in name else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @model_validator(mode="after")
    def _named(self) -> Self:
        """The name is part of the options, so that a written config says what it is of."""
        if self.key:
            self.__dict__[self.key] = self.kind_name()  # frozen, but it is still being made
        return self


class Part(Kind):
    """A kind that a `Parts` lists. A built-in one has its name as `kind: Literal["its name"] = "its name"`."""

    key: ClassVar[str] = "kind"
    kind: str = Field("", description="which one this is: a name, or file.py:Name")

    @classmethod
    def kind_name(cls) -> str:
        """The name by which a recipe finds this class; a class from outside that derives from a built-in one has its own."""
        names = get_args(cls.model_fields["kind"].annotation)
        return names[0] if names and not is_from_outside(cls) else spec_of(cls)


Of = TypeVar("Of", bound=Kind)


class Kinds(Generic[Of]):
    """The kinds of one family; as an annotation of a field it reads the field's entries."""

    default: str | None = None
    """The kind of an entry that names none."""

    def __init__(self, base: type[Of], what: str) -> None:
        self.base, self.what = base, what

    def names(self) -> list[str]:
        """The built-in kinds, in alphabetical order."""
        package = importlib.import_module(self.base.package)
        return sorted(found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_"))

    def find(self, name: str) -> type[Of]:
        """The class of a kind: of this name, or `file.py:Name`. A RecipeError says what is wrong and what is near."""
        if is_outside(name):
            return self.adopt(load_outside(name), name)
        if name not in self.names():
            fix = suggestion(name, self.names(), f"{self.what}s besides file.py:Name")
            raise RecipeError(f"there is no {self.what} {name}", fix=fix)
        return self._find_builtin(name)

    def _find_builtin(self, name: str) -> type[Of]:
        module = importlib.import_module(f"{self.base.package}.{name}")
        (kind,) = (one for one in vars(module).values() if self._is_kind(one) and one.__module__ == module.__name__)
        return kind  # the one class of this family that the file defines

    def adopt(self, thing: Any, spec: str) -> type[Of]:
        """Check that something from outside is a kind of this family."""
        return adopt(thing, spec, self.base, self.what)

    def builtin(self) -> dict[str, type[Of]]:
        """Every built-in kind by name."""
        return {name: self.find(name) for name in self.names()}

    def _is_kind(self, thing: Any) -> bool:
        return is_kind(thing, self.base)

    def read(self, value: Any, info: ValidationInfo | None = None) -> Of:
        """An entry of a recipe as an object of its kind; pydantic's errors point into the entry."""
        if isinstance(value, self.base):
            return value
        key = self.base.key
        given = {key: value} if isinstance(value, str) else value
        if not isinstance(given, Mapping):
            raise PydanticKnownError("dict_type")
        if self.default is not None and key not in given:
            given = {key: self.default, **given}
        if not isinstance(given.get(key), str):
            raise PydanticKnownError("union_tag_not_found", {"discriminator": f"'{key}'"})
        try:
            kind = self.find(given[key])
        except RecipeError as error:
            raise wrong_kind(error, key) from error
        if issubclass(kind, Part) and is_from_outside(kind):  # it may derive from a built-in kind, whose name differs
            given = {name: option for name, option in given.items() if name != key}
        if info is not None and info.mode == "json":  # as strict as the recipe around it (recipe/validate.py)
            return kind.model_validate_json(json.dumps(given), strict=True)
        return kind.model_validate(given)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """pydantic reads entries with `read`, and writes all options of the kind."""
        serialization = core_schema.plain_serializer_function_ser_schema(
            lambda kind, info: kind.model_dump(mode=info.mode), info_arg=True
        )
        return core_schema.with_info_plain_validator_function(self.read, serialization=serialization)


class Parts(Kinds[Of]):
    """The kinds of one family whose built-in classes are listed."""

    def __init__(self, base: type[Of], what: str, classes: Sequence[type[Of]], default: str | None = None) -> None:
        super().__init__(base, what)
        self.classes = {one.kind_name(): one for one in classes}
        self.default = default

    def names(self) -> list[str]:
        """The built-in kinds, in the order of the list."""
        return list(self.classes)

    def _find_builtin(self, name: str) -> type[Of]:
        return self.classes[name]


class KindName:
    """The annotation of a text that is the name of a kind: `Annotated[str, KindName(SUITES)]`."""

    def __init__(self, kinds: Kinds[Any]) -> None:
        self.kinds = kinds

    def read(self, name: str) -> str:
        """The name as the kind itself has it."""
        try:
            return self.kinds.find(name).kind_name()
        except RecipeError as error:
            raise wrong_kind(error, "") from error

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """A text, then looked up."""
        return core_schema.no_info_after_validator_function(self.read, handler(source))


class KindsByName(Config):
    """A config whose further keys are names of kinds, with their options: `{arithmetic: {digits_max: 3}}`."""

    model_config = ConfigDict(extra="allow")
    kinds: ClassVar[Kinds[Any]]

    def kind(self, name: str) -> Any:
        """The kind of this name, with the options that are given."""
        given = (self.model_extra or {}).get(name)
        return self.kinds.find(name)() if given is None else given

    def outside(self) -> dict[str, str]:
        """What the kinds read besides their options."""
        return {name: found for kind in (self.model_extra or {}).values() for name, found in kind.outside().items()}

    @model_validator(mode="after")
    def _read_kinds(self, info: ValidationInfo) -> Self:
        found = self.__pydantic_extra__ or {}
        for name, value in list(found.items()):
            if value is None:  # takes away what a recipe inherits
                del found[name]
                continue
            try:
                options = value if isinstance(value, Kind) else {**value, self.kinds.base.key: name}
                kind = self.kinds.read(options, info)
            except TypeError as error:
                raise _below(name, [InitErrorDetails(type="dict_type", loc=(), input=value)]) from error
            except PydanticCustomError as error:
                known = [*type(self).model_fields, *self.kinds.names()]
                context = {**(error.context or {})}
                context["fix"] = context["fix"] if is_outside(name) else suggestion(name, known, "known keys")
                wrong = PydanticCustomError(WRONG_KIND, "{problem} (fix: {fix})", context)
                raise _below(name, [InitErrorDetails(type=wrong, loc=(), input=value)]) from error
            except ValidationError as error:
                raise _below(name, [_again(detail) for detail in error.errors(include_url=False)]) from error
            del found[name]
            found[kind.kind_name()] = kind
        return self


def _again(detail: ErrorDetails) -> InitErrorDetails:
    """An error of pydantic's, to be raised once more."""
    context = detail.get("ctx", {})
    kind = detail["type"]
    if kind == WRONG_KIND:
        return InitErrorDetails(
            type=PydanticCustomError(WRONG_KIND, "{problem} (fix: {fix})", context),
            loc=detail["loc"],
            input=detail["input"],
        )
    return InitErrorDetails(type=kind, loc=detail["loc"], input=detail["input"], ctx=context)


def _below(name: str, details: list[InitErrorDetails]) -> ValidationError:
    """The errors of the entry `name`."""
    placed = [InitErrorDetails(**{**detail, "loc": (name, *detail["loc"])}) for detail in details]
    return ValidationError.from_exception_data(name, placed)


def wrong_kind(error: RecipeError, key: str) -> PydanticCustomError:
    """What pydantic collects instead of the error; `key` is where in the entry the kind is named."""
    context = {"problem": error.problem, "fix": error.fix or "", "discriminator": key}
    return PydanticCustomError(WRONG_KIND, "{problem} (fix: {fix})", context)
