"""A recipe file, the file it extends, and the changes given on the command line, as one tree.

`extends: base.yaml` (relative to the file that says so) lays this file over the base: mappings are merged key by key,
lists and scalars are replaced, a stage set to null is removed. `--set stage.key=value` does the same for one value.
`file.py:Name` and a suite's `file.yaml` are relative to the file that says so, too; on the command line to the working
directory. Each value keeps its place, so that an error names the right file and line or the right option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.recipe.problems import Problems
from ingot.recipe.tree import Node, from_python, merge, parse_yaml
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import anchor

ROOT_KEYS = ("name", "seed", "inputs", "presets", "stages", "extends", "next")
Changes = Sequence[str] | Mapping[str, Any]
"""`["a.b=c"]` as on the command line, values read as YAML; or `{"a.b": c}` from Python, values taken as they are."""


@dataclass(frozen=True)
class Change:
    """One value to set, and where."""

    path: tuple[str, ...]
    value: Node


def parse_changes(changes: Changes, problems: Problems) -> list[Change]:
    """The changes with their values; a malformed one is a problem."""
    parsed: list[Change] = []
    if isinstance(changes, Mapping):
        pairs = [(key, f"set {key}", from_python(value, f"set {key}", problems)) for key, value in changes.items()]
    else:
        pairs = []
        for text in changes:
            place = f"--set {text}"
            key, equals, value = text.partition("=")
            if not equals:
                problems.add("expected a key and a value", place=place, fix="write --set stage.key=value")
                continue
            pairs.append((key, place, parse_yaml(value, place, problems, lines=False)))
    for key, place, node in pairs:
        path = tuple(key.strip().split("."))
        if all(path):
            parsed.append(Change(path, anchored(node, Path())))
        else:
            problems.add("a key is names separated by dots", place=place, fix="write --set stage.key=value")
    return parsed


def read_file(path: Path, problems: Problems) -> Node:
    """The tree of `path` over everything it extends, without the `extends` keys."""
    return _read(path, (), problems, asked_at=None)


def _read(path: Path, above: tuple[Path, ...], problems: Problems, asked_at: str | None) -> Node:
    label = str(path)
    empty = Node({}, label)
    if path.resolve() in above:
        chain = " extends ".join(file.name for file in (*above, path))
        problems.add(f"the recipe extends itself: {chain}", place=asked_at or label)
        return empty
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if asked_at is None:
            problems.add("there is no such file", place=label)
        else:
            problems.add(f"there is no file {label}", place=asked_at, fix="write the path from this recipe's folder")
        return empty
    except UnicodeDecodeError:
        problems.add("not a text file in UTF-8", place=label)
        return empty
    except OSError as error:
        problems.add(f"cannot be read: {error.strerror or error}", place=asked_at or label)
        return empty
    before = len(problems.found)
    tree = parse_yaml(text, label, problems)
    if len(problems.found) > before:
        return empty
    if tree.content is None:
        problems.add("the file is empty", place=label, fix="write name, seed and stages")
        return empty
    if not isinstance(tree.content, dict):
        problems.add("expected a mapping of keys to values", place=tree.place, fix="write name, seed and stages")
        return empty
    base = tree.content.get("extends")
    own = anchored(
        Node({key: value for key, value in tree.content.items() if key != "extends"}, tree.place), path.parent
    )
    if base is None:
        return own
    if not isinstance(base.content, str) or not base.content or "\0" in base.content:
        problems.add("extends: expected the path of a recipe file", place=base.place)
        return own
    inherited = _read(path.parent / base.content, (*above, path.resolve()), problems, asked_at=base.place)
    return _lay_over(inherited, own)


def anchored(node: Node, folder: Path) -> Node:
    """The tree with every `file.py:Name`, also in keys, made absolute: a config does not know its folder."""
    if isinstance(node.content, dict):
        return Node({anchor(key, folder): anchored(child, folder) for key, child in node.content.items()}, node.place)
    if isinstance(node.content, list):
        return Node([anchored(child, folder) for child in node.content], node.place)
    return Node(anchor(node.content, folder), node.place) if isinstance(node.content, str) else node


def _lay_over(base: Node, over: Node) -> Node:
    """`merge`, and stages of the base that are null in `over` are gone."""
    merged = merge(base, over)
    stages = merged.entries.get("stages")
    if stages is None or not isinstance(stages.content, dict):
        return merged
    known = base.entries.get("stages", Node({}, "")).entries
    written = over.entries.get("stages", Node({}, "")).entries
    removed = {name for name, node in written.items() if node.content is None and name in known}
    kept = Node({name: node for name, node in stages.content.items() if name not in removed}, stages.place)
    return Node({**merged.entries, "stages": kept}, merged.place)


def apply_changes(root: Node, changes: Sequence[Change], problems: Problems) -> Node:
    """`root` with each change made; `name`, `seed` and `inputs` are the recipe's, any other first word is a stage."""
    for change in changes:
        head = change.path[0]
        stages = root.entries.get("stages", Node({}, "")).entries
        if change.path in (("name",), ("seed",)) or (head == "inputs" and len(change.path) == 2 and head not in stages):
            root = set_value(root, change.path, change.value, problems)
        elif head not in stages:
            problems.add(
                f"no stage is named {head}",
                place=change.value.place,
                fix=suggestion(head, [*stages, "name", "seed", "inputs"], "to set"),
            )
        elif len(change.path) == 1 and change.value.content is None:
            kept = {name: node for name, node in stages.items() if name != head}
            root = Node({**root.entries, "stages": Node(kept, root.entries["stages"].place)}, root.place)
        else:
            root = set_value(root, ("stages", *change.path), change.value, problems)
    return root


def set_value(node: Node | None, path: tuple[str, ...], value: Node, problems: Problems) -> Node:
    """`node` with `value` at `path`; a number in the path is an index where the tree has a list."""
    if not path:
        return value if node is None else merge(node, value)
    head, rest = path[0], path[1:]
    if node is not None and isinstance(node.content, list):
        items = list(node.content)
        if not (head.isascii() and head.isdecimal() and len(head) < 9 and int(head) < len(items)):
            problems.add(f"{head} is not an index of a list of {len(items)}", place=value.place, fix="count from 0")
            return node
        items[int(head)] = set_value(items[int(head)], rest, value, problems)
        return Node(items, node.place)
    inside = node is not None and isinstance(node.content, dict)
    entries = dict(node.entries) if node is not None else {}
    entries[head] = set_value(entries.get(head), rest, value, problems)
    return Node(entries, node.place if node is not None and inside else value.place)
