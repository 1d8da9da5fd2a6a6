"""A tree of values against a config class: the typed config, or every problem in words, with place and fix.

Types are taken strictly (`steps: "12"` and `steps: true` are wrong), because a recipe that means something else than it
says is worse than an error. pydantic's strict JSON rules apply: they still read a list as a tuple and text as a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ingot.recipe.problems import Problems
from ingot.recipe.tree import Node
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.kinds import WRONG_KIND, Kinds, KindsByName
from ingot.workspace.nearest import nearest, suggestion
from ingot.workspace.outside import without_paths

EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "path": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "none": "null",
}
Location = tuple[str | int, ...]


def validate(
    model: type[Config], node: Node, name: str, problems: Problems, also: tuple[str, ...] = ()
) -> Config | None:
    """`node` as a `model`; None if that added to `problems`.

    `name` is the stage's name, for dotted paths; `also` are keys beside the model's that a misspelt one may have meant.
    """
    plain = node.plain()
    try:
        return model.model_validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        # pydantic is strict about defaults too (text for a path): those are no fault of the recipe
        ours = [detail for detail in error.errors(include_url=False) if _is_ours(node, detail)]
    if not ours:
        try:
            return model.model_validate(plain)
        except ValidationError as error:
            ours = error.errors(include_url=False)
    grouped: dict[Location, list[ErrorDetails]] = {}
    for detail in ours:
        grouped.setdefault(_find(node, detail), []).append(detail)
    for path, details in grouped.items():
        _explain(model, node, path, details, name, problems, also)
    return None


def _child(node: Node, part: str | int) -> Node | None:
    """The entry or item of a node, if it has it. A key of a mapping may be a number: `{5: 0.1}`."""
    if isinstance(node.content, list):
        return node.content[part] if isinstance(part, int) and part < len(node.content) else None
    return node.entries.get(str(part))


def _alignments(node: Node, location: Location) -> Iterator[tuple[bool, Location, Node]]:
    """Every path in the tree along a location, which may leave parts out: (whether it has the last part, the path, its end)."""
    if not location:
        yield True, (), node
        return
    part, rest = location[0], location[1:]
    child = _child(node, part)
    if child is not None:
        for whole, path, end in _alignments(child, rest):
            yield whole, (part, *path), end
    for whole, path, end in _alignments(node, rest):
        yield whole and bool(rest), path, end


def _find(node: Node, detail: ErrorDetails) -> Location:
    """Where in the tree an error is.

    pydantic's location also has tags of unions and keys that are missing, so the best walk along it is taken: one that
    ends where the location ends, in a mapping if an entry of it is missing, the longest.
    """
    ends = _alignments(node, detail["loc"])
    missing = detail["type"] == "missing"
    _, path, end = max(ends, key=lambda way: (way[0], not missing or not _is_leaf(way[2]), len(way[1])))
    if detail["type"].startswith("union_tag") or detail["type"] == WRONG_KIND:
        key = str(detail["ctx"]["discriminator"]).strip("'")
        return (*path, key) if _child(end, key) is not None else path
    return path


def _is_leaf(node: Node) -> bool:
    return not isinstance(node.content, dict | list)


def _at(node: Node, path: Location) -> Node:
    for part in path:
        node = _child(node, part) or node
    return node


def _is_ours(node: Node, detail: ErrorDetails) -> bool:
    """Whether the error is in the recipe, rather than in a default that strict mode rejects.

    A list is too short for pydantic also where its items are wrong, which is said of each of them.
    """
    if detail["type"] == "too_short":
        items = _at(node, _find(node, detail)).content
        return not isinstance(items, list) or len(items) < detail["ctx"]["min_length"]
    return not detail["loc"] or detail["type"] == "missing" or bool(_find(node, detail))


def _explain(
    model: type[Config],
    node: Node,
    path: Location,
    details: list[ErrorDetails],
    name: str,
    problems: Problems,
    also: tuple[str, ...],
) -> None:
    """One problem for all of pydantic's errors about one value (a union has one for each member)."""
    value = _at(node, path)
    dotted = ".".join([name, *(str(without_paths(key)) for key in path)])
    kinds = {detail["type"] for detail in details}
    if kinds == {"missing"}:
        for detail in details:
            missing = ".".join([dotted, str(detail["loc"][-1])])
            fix = _describe_missing(model, node, detail["loc"])
            problems.add(f"{missing} is missing", place=value.place, fix=fix)
    elif WRONG_KIND in kinds:
        said = next(detail["ctx"] for detail in details if detail["type"] == WRONG_KIND)
        problems.add(f"{dotted}: {said['problem']}", place=value.place, fix=said["fix"] or None)
    elif kinds == {"union_tag_not_found"}:
        key = str(details[0]["ctx"]["discriminator"]).strip("'")
        walked = _walk(model, node, details[0]["loc"])
        fields = [one.model_fields[key] for one in walked if key in one.model_fields]
        tags = [str(tag) for field in fields for tag in _literals(field.annotation)]
        tables = _tables_at(model, node, details[0]["loc"])
        tags += [tag for table in tables for tag in table.names()]
        outside = ", or file.py:Name" if tables else ""
        problems.add(
            f"{dotted}.{key} is missing", place=value.place, fix=f"give {key}: one of {', '.join(tags)}{outside}"
        )
    elif kinds == {"extra_forbidden"}:
        models = _walk(model, node, details[0]["loc"][:-1])
        names = _fields(models) + list(also if len(path) == 1 else ())
        moved = [one.moved[str(path[-1])] for one in models if issubclass(one, Config) and str(path[-1]) in one.moved]
        fix = f"write {moved[0]}" if moved else _suggest_field(str(path[-1]), names)
        problems.add(f"unknown key {dotted}", place=value.place, fix=fix)
    elif all(_expected(detail) for detail in details):
        wanted = " or ".join(dict.fromkeys(_expected(detail) for detail in details))
        problem = f"{dotted}: expected {wanted}, given {_given(value)}"
        problems.add(problem, place=value.place, fix=_repair(value, wanted))
    else:
        said = dict.fromkeys(detail["msg"].removeprefix("Value error, ") for detail in details)
        shown = f", given {_given(value)}" if path and not isinstance(value.content, dict) else ""
        text = "; ".join(message[:1].lower() + message[1:] for message in said)
        problems.add(f"{dotted}: {text}{shown}", place=value.place)


def _expected(detail: ErrorDetails) -> str:
    """What type was wanted, in words; empty if the error is not about a type."""
    if detail["type"] in ("literal_error", "enum"):
        return str(detail["ctx"]["expected"])
    if detail["type"] == "union_tag_invalid":
        return str(detail["ctx"]["expected_tags"])
    kind, _, rest = detail["type"].partition("_")
    return EXPECTED.get(kind, "") if rest in ("type", "parsing", "from_float", "required") else ""


def _repair(value: Node, wanted: str) -> str | None:
    """The likely intended value, if there is one."""
    if isinstance(value.content, float) and value.content.is_integer() and "a whole number" in wanted:
        return f"write {int(value.content)}"
    if isinstance(value.content, str):
        right = nearest(value.content, re.findall(r"'([^']*)'", wanted))
        return f"did you mean {right}?" if right else None
    return None


def _given(node: Node) -> str:
    content = node.content
    if content is None:
        return "nothing (null)"
    if isinstance(content, bool):
        return "true" if content else "false"
    if isinstance(content, str):
        return f"the text {content[:60]!r}"
    if isinstance(content, dict):
        return "a mapping"
    if isinstance(content, list):
        return f"a list of {len(content)}"
    return f"the number {content}"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Every config class inside a type: of `list[A | B] | None`, A and B."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def _tables(annotation: Any) -> list[Kinds[Any]]:
    """The tables of kinds that a type is annotated with, at whatever depth."""
    if isinstance(annotation, Kinds):
        return [annotation]
    return [table for argument in get_args(annotation) for table in _tables(argument)]


def _tables_of(field: FieldInfo) -> list[Kinds[Any]]:
    return [table for part in (field.annotation, *field.metadata) for table in _tables(part)]


def _steps(
    model: type[BaseModel], node: Node, location: Location
) -> Iterator[tuple[list[type[BaseModel]], list[Kinds[Any]]]]:
    """Along a location: the config classes that may stand there, and the tables of kinds that an entry there is read by."""
    models: list[type[BaseModel]] = [model]
    tables: list[Kinds[Any]] = []
    for part in location:
        before = [one for one in models if part not in one.model_fields]
        fields = [one.model_fields[str(part)] for one in models if part in one.model_fields]
        inside = [one for field in fields for one in _models(field.annotation)]
        tagged = [m for m in models if any(part in _literals(f.annotation) for f in m.model_fields.values())]
        models = inside or tagged or models  # an index or a key of a dict stays with the same classes
        tables = [table for field in fields for table in _tables_of(field)] if fields else tables
        node = _child(node, part) or node
        named = [kind for table in tables for kind in _kind_of(table, node)]
        named += [
            one for keyed in before if issubclass(keyed, KindsByName) for one in _find_kind(keyed.kinds, str(part))
        ]
        models, tables = (named, []) if named else (models, tables)
        yield models, tables


def _kind_of(table: Kinds[Any], entry: Node) -> list[type[BaseModel]]:
    """The class of an entry, if it names one that is there."""
    tag = entry.entries.get(table.base.key)
    name = table.default if tag is None else tag.content
    return _find_kind(table, name) if isinstance(name, str) else []


def _find_kind(table: Kinds[Any], name: str) -> list[type[BaseModel]]:
    try:
        return [table.find(name)]
    except RecipeError:  # a problem that is reported where it is found
        return []


def _walk(model: type[BaseModel], node: Node, location: Location) -> list[type[BaseModel]]:
    """The config classes that may stand at `location` of a `model` whose values are `node`."""
    return [[model], *(models for models, _ in _steps(model, node, location))][-1]


def _tables_at(model: type[BaseModel], node: Node, location: Location) -> list[Kinds[Any]]:
    return [[], *(tables for _, tables in _steps(model, node, location))][-1]


def _literals(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _fields(models: list[type[BaseModel]], depth: int = 2) -> list[str]:
    """The keys that these classes have, those of nested configs in dotted form after the direct ones."""
    direct: list[str] = []
    nested: list[str] = []
    for one in models:
        for name, field in one.model_fields.items():
            direct.append(name)
            if depth:
                nested += [f"{name}.{n}" for inner in _models(field.annotation) for n in _fields([inner], depth - 1)]
    return list(dict.fromkeys(direct + nested))


def _suggest_field(key: str, names: list[str]) -> str:
    """The nearest direct key, else the nested key of nearly this name, else all direct keys."""
    direct = [name for name in names if "." not in name]
    right = nearest(key, direct)
    if right is None:
        last = {name.rpartition(".")[2]: name for name in reversed(names) if "." in name}
        inner = nearest(key, last)
        right = last[inner] if inner is not None else None
    return f"did you mean {right}?" if right else suggestion(key, direct, "known keys")


def _describe_missing(model: type[BaseModel], node: Node, location: Location) -> str | None:
    """What the missing key means, from its description."""
    for one in _walk(model, node, location[:-1]):
        field = one.model_fields.get(str(location[-1]))
        if field is not None and field.description:
            return f"give {location[-1]}: {field.description}"
    return None
