"""Writes docs/reference/options.md from the config classes: an option is documented where it is declared, nowhere else.

python tools/reference.py            write the page
python tools/reference.py --check    fail if the page is not what the classes say (CI)
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import typing
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ingot.recipe.stages import STAGES
from ingot.workspace.kinds import Kind, Kinds, KindsByName

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"
HEAD = """# Options

Every key that a stage understands, by stage kind, generated from the config classes by `make reference`.
A key without a default must be given. Nested options have their own table below; follow the type's name.
"""


def main() -> int:
    """Write or check the page; returns the exit code."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PAGE} is out of date with the config classes; run `make reference` and commit it\n")
    return 1


def page() -> str:
    """The whole reference: a section per stage kind, then one per nested config class."""
    parts, shown = [HEAD], list[type[BaseModel]]()
    for kind in STAGES.values():
        config = kind.config()
        needs = ", ".join(f"`{role}`" + " (optional)" * (role in kind.optional) for role in kind.needs) or "nothing"
        makes = ", ".join(f"`{made}`" for made in kind.makes)
        parts.append(f"## {kind.kind}\n\n{kind.does} Needs {needs}; makes {makes}.\n\n{table(config)}")
        shown += [nested for nested in nested_configs(config) if nested not in shown]
    parts.append("# Nested options\n")
    parts += [f"## {nested.__name__}\n\n{summary(nested)}\n\n{table(nested)}" for nested in shown]
    return "\n".join(parts)


def summary(config: type[BaseModel]) -> str:
    """The class's docstring; indented paragraphs (formulas, tables) as code, so that their lines stay apart."""
    paragraphs = inspect.cleandoc(config.__doc__ or "").split("\n\n")
    return "\n\n".join(f"```text\n{textwrap.dedent(one)}\n```" if one.startswith(" ") else one for one in paragraphs)


def table(config: type[BaseModel]) -> str:
    """The fields of a config class as a Markdown table."""
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in config.model_fields.items():
        own = f"`{config.kind_name()}`" if issubclass(config, Kind) and name == config.key else ""
        cells = (
            f"`{name}`",
            own or type_name(whole_type(field)),
            own or default(field),
            field.description or "",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    if issubclass(config, KindsByName):
        for name, kind in config.kinds.builtin().items():
            rows.append(f"| `{name}` | {type_name(kind)} | its defaults | {summary(kind).splitlines()[0]} |")
        rows.append(
            f"| `file.py:Name` | mapping | its defaults | a {config.kinds.what} of your own, with its options |"
        )
    return "\n".join(rows) + "\n"


def whole_type(field: FieldInfo) -> object:
    """The type of a field with the table of kinds that pydantic keeps beside it."""
    tables = [each for each in field.metadata if isinstance(each, Kinds)]
    return typing.Annotated[field.annotation, tables[0]] if tables else field.annotation


def default(field: FieldInfo) -> str:
    """The default as it would be written in a recipe."""
    if field.default_factory is not None:
        return "see below"
    if field.default is PydanticUndefined:
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        return f"**required**, or `{extra['instead']}`" if "instead" in extra else "**required**"
    if isinstance(field.default, BaseModel):
        return "its defaults"
    items = list(field.default.values()) if isinstance(field.default, dict) else field.default
    if isinstance(items, tuple | list) and any(isinstance(item, BaseModel) for item in items):
        return "see the class"
    if field.default is None:
        return "`null`"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{list(field.default) if isinstance(field.default, tuple) else field.default}`"


def type_name(annotation: object) -> str:
    """A readable name of a type, config classes as links to their table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        kinds = [kind for table in arguments[1:] if isinstance(table, Kinds) for kind in table.builtin().values()]
        return " or ".join([*map(type_name, kinds), "`file.py:Name`"]) if kinds else type_name(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list):
        return "list of " + type_name(arguments[0])
    if origin in (dict, Mapping):
        return f"mapping of {type_name(arguments[0])} to {type_name(arguments[1])}"
    if arguments:
        return " or ".join(type_name(argument) for argument in arguments)
    return "null" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def nested_configs(annotation: object) -> list[type[BaseModel]]:
    """The config classes that fields of a class (or of its fields) hold, outer ones first."""
    found: list[type[BaseModel]] = []
    fields = (
        annotation.model_fields.values() if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()
    )
    for field in fields:
        kinds = [kind for part in (field.annotation, *field.metadata) for kind in _kinds_in(part)]
        for config in [*_configs_in(whole_type(field)), *kinds]:
            found += [each for each in (config, *nested_configs(config)) if each not in found]
    if isinstance(annotation, type) and issubclass(annotation, KindsByName):
        found += [kind for kind in annotation.kinds.builtin().values() if kind not in found]
    return found


def _kinds_in(annotation: object) -> list[type[BaseModel]]:
    """The built-in kinds of a table that a type is annotated with; any other comes from the user's own file."""
    if isinstance(annotation, Kinds):
        return list(annotation.builtin().values())
    return [kind for argument in typing.get_args(annotation) for kind in _kinds_in(argument)]


def _configs_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if any(isinstance(argument, Kinds) for argument in typing.get_args(annotation)):
        return []  # not the base class, but its kinds: see `_kinds_in`
    return [config for argument in typing.get_args(annotation) for config in _configs_in(argument)]


if __name__ == "__main__":
    sys.exit(main())
