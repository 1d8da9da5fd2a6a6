"""Chat formats that a user names: one of the table, one of a YAML file, or one in Python (`file.py:NAME`).

A model carries the format that was named for it as `chat_format.yaml` beside its chat template, so that every command reads its
turns in the same way. It holds data only: nothing is run when a model from outside is loaded.

    glm45: {}                          a format of the table, by its name
    mine: {states: {content: …}}       one of one's own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ingot.tokens.syntax import Syntax, formats, read_format
from ingot.tokens.tokenizer import FORMAT_FILE, Tokenizer
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import DATA_SPEC, is_outside, load_outside


def syntax_of(tokenizer: Tokenizer) -> Syntax:
    """How the model of a tokenizer writes its turns: as its folder says, or else as its chat template shows."""
    if FORMAT_FILE in tokenizer.files:
        return _read(tokenizer.files[FORMAT_FILE].decode("utf-8"), FORMAT_FILE)
    return Syntax.of(tokenizer.chat_template or "", tokenizer.special)


def format_file(spec: str) -> bytes:
    """The `chat_format.yaml` of a format by its name, its YAML file, or `file.py:NAME`."""
    if DATA_SPEC.fullmatch(spec):
        if not Path(spec).is_file():
            raise RecipeError("no such file", place=spec, fix="check the path, or name a format: `ingot model formats`")
        text = Path(spec).read_text(encoding="utf-8")
        _read(text, spec)
        return text.encode()
    if is_outside(spec):
        row = load_outside(spec, place="format")
        label = spec.rpartition(":")[2].lower()
        read_format(label, row, spec)
        return yaml.safe_dump({label: _plain(row)}, allow_unicode=True, sort_keys=False).encode()
    if spec not in formats():
        fix = f"{suggestion(spec, list(formats()), 'the formats')}; or give a YAML file, or file.py:NAME"
        raise RecipeError(f"no chat format {spec!r}", place="format", fix=fix)
    return f"{spec}: {{}}\n".encode()


def with_format(tokenizer: Tokenizer, spec: str) -> Tokenizer:
    """The tokenizer whose model writes its turns in this format."""
    files = tokenizer.to_files() | {FORMAT_FILE: format_file(spec)}
    return Tokenizer(tokenizer.backend, tokenizer.chat_template, files)


def _read(text: str, place: str) -> Syntax:
    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ArtifactError(f"not YAML: {error}", place=place, fix="mend the file, or name the format again") from error
    if not isinstance(rows, Mapping) or len(rows) != 1:
        raise ArtifactError("not one chat format", place=place, fix="write NAME: {states: {…}}, one format a file")
    [(label, row)] = rows.items()
    if not row and label in formats():
        return replace(formats()[label], origin=f"{place} names it")
    found = read_format(str(label), row, place)
    if found.found:
        fix = "leave it out: the model carries its format"
        raise ArtifactError("`found` is for the table: a format that is named is not looked for", place=place, fix=fix)
    return replace(found, origin=f"{place} declares it")


def _plain(value: Any) -> Any:
    """Mappings and lists as YAML writes them."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
