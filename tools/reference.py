"""Write docs/reference/ from the config classes: an option is documented where it is declared, nowhere else.

A page per stage kind has the stage's keys and the nested options that this kind alone has. What several kinds share stands on a
page of its room: `SHARED`. The index, options.md, says which is where.

python tools/reference.py            write the pages
python tools/reference.py --check    fail if a page is not what the classes say (CI)
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ingot.lab.ablation_config import AblationConfig
from ingot.recipe.stages import STAGES
from ingot.workspace.functions import FunctionName
from ingot.workspace.kinds import Kind, Kinds, KindsByName
from ingot.workspace.stage import Stage

Link = Callable[[type[BaseModel]], str]
FOLDER = Path(__file__).parent.parent / "docs" / "reference"
SHARED = {  # page: its heading, and the modules whose options stand there
    "steps": ("Data steps", "ingot.data.steps"),
    "filters": ("Filters of conversations", "ingot.post.data.filters"),
    "tasks": ("Tasks and environments", "ingot.envs"),
    "model": ("The model's parts", "ingot.model"),
    "training": ("Training: optimizer, mesh, guards, checkpoints", "ingot"),
}
ABLATION = "ablation"
INDEX = """# Options

Every key that a stage understands, generated from the config classes by `make reference`: a page per stage kind, one for the
file of an ablation, and one for each family of options that several kinds share. A key without a default must be given.

| page | what it has |
| --- | --- |
"""


def main() -> int:
    """Write or check the pages; returns the exit code."""
    written = pages()
    stale = [name for name, text in written.items() if _read(FOLDER / name) != text]
    stale += [path.name for path in sorted(FOLDER.glob("*.md")) if path.name not in written]
    if "--check" in sys.argv:
        if stale:
            sys.stderr.write(f"docs/reference: {', '.join(stale)} out of date with the classes; run `make reference`\n")
        return bool(stale)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in written:
            (FOLDER / name).write_text(written[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    homes = homes_of_options()
    written, index = {}, [INDEX]
    for kind in STAGES.values():
        nested = [config for config, home in homes.items() if home == kind.kind]
        written[f"{kind.kind}.md"] = _page(f"# {kind.kind}\n\n{_purpose(kind)}\n", [kind.config, *nested], kind.kind)
        index.append(f"| [{kind.kind}]({kind.kind}.md) | {kind.does} |\n")
    nested = [config for config, home in homes.items() if home == ABLATION]
    written[f"{ABLATION}.md"] = _page(
        f"# {ABLATION}\n\nThe file of `ingot ablate`.\n", [AblationConfig, *nested], ABLATION
    )
    index.append(f"| [{ABLATION}]({ABLATION}.md) | {summary(AblationConfig)} |\n")
    for name, (heading, _) in SHARED.items():
        nested = [config for config, home in homes.items() if home == name]
        written[f"{name}.md"] = _page(f"# {heading}\n", nested, name)
        index.append(f"| [{heading}]({name}.md) | {', '.join(_link(each, homes, '') for each in nested)} |\n")
    written["options.md"] = "".join(index)
    return written


@functools.cache
def homes_of_options() -> dict[type[BaseModel], str]:
    """The page of every nested config class: that of the only stage kind that has it, or the shared page of its room."""
    users: dict[type[BaseModel], list[str]] = {}
    for kind in STAGES.values():
        for nested in nested_configs(kind.config):
            users.setdefault(nested, []).append(kind.kind)
    users |= {nested: [ABLATION] for nested in nested_configs(AblationConfig)}
    return {config: _home(config, kinds) for config, kinds in users.items()}


def _home(config: type[BaseModel], kinds: list[str]) -> str:
    shared = next(name for name, (_, module) in SHARED.items() if config.__module__.startswith(module))
    return kinds[0] if len(kinds) == 1 and shared != "model" else shared


def _purpose(kind: Stage) -> str:
    needs = ", ".join(f"`{role}`" + " (optional)" * (role in kind.optional) for role in kind.needs) or "nothing"
    return f"{kind.does} Needs {needs}; makes {', '.join(f'`{made}`' for made in kind.makes)}."


def _page(head: str, configs: list[type[BaseModel]], name: str) -> str:
    """A page: its head, then the table of each class under its name; a stage's own table needs no other name."""
    homes = homes_of_options()
    parts = [head]
    for config in configs:
        named = f"## {config.__name__}\n\n{summary(config)}\n\n" if config in homes else ""
        parts.append(named + table(config, lambda nested: _link(nested, homes, name)))
    return "\n".join(parts)


def _link(config: type[BaseModel], homes: Mapping[type[BaseModel], str], page: str) -> str:
    """A link to a class's table as a page writes it."""
    home = homes.get(config, "")
    return f"[{config.__name__}]({'' if home in (page, '') else home + '.md'}#{config.__name__.lower()})"


def summary(config: type[BaseModel]) -> str:
    """The class's docstring; indented paragraphs (formulas, tables) as code, so that their lines stay apart."""
    paragraphs = inspect.cleandoc(config.__doc__ or "").split("\n\n")
    return "\n\n".join(f"```text\n{textwrap.dedent(one)}\n```" if one.startswith(" ") else one for one in paragraphs)


def table(config: type[BaseModel], link: Link) -> str:
    """The fields of a config class as a Markdown table."""
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in config.model_fields.items():
        own = f"`{config.kind_name()}`" if issubclass(config, Kind) and name == config.key else ""
        cells = (
            f"`{name}`",
            own or type_name(whole_type(field), link),
            own or default(field),
            field.description or "",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    if issubclass(config, KindsByName):
        for name, kind in config.kinds.builtin().items():
            rows.append(f"| `{name}` | {type_name(kind, link)} | its defaults | {summary(kind).splitlines()[0]} |")
        rows.append(
            f"| `file.py:Name` | mapping | its defaults | a {config.kinds.what} of your own, with its options |"
        )
    return "\n".join(rows) + "\n"


def whole_type(field: FieldInfo) -> object:
    """The type of a field with the table of kinds that pydantic keeps beside it."""
    tables = [each for each in field.metadata if isinstance(each, Kinds | FunctionName)]
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


def type_name(annotation: object, link: Link) -> str:
    """A readable name of a type, config classes as links to their table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return link(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        functions = [each for each in arguments[1:] if isinstance(each, FunctionName)]
        if functions:
            return " or ".join([*(f"`{name}`" for name in functions[0].builtin), "`file.py:function`"])
        kinds = [kind for table in arguments[1:] if isinstance(table, Kinds) for kind in table.builtin().values()]
        return " or ".join([*map(link, kinds), "`file.py:Name`"]) if kinds else type_name(arguments[0], link)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list):
        return "list of " + type_name(arguments[0], link)
    if origin in (dict, Mapping):
        return f"mapping of {type_name(arguments[0], link)} to {type_name(arguments[1], link)}"
    if arguments:
        return " or ".join(type_name(argument, link) for argument in arguments)
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
