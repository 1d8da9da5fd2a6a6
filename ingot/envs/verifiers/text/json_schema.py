"""Whether an answer is JSON that fits a schema: the whole content, without a fence or a word around it.

JSON here is RFC 8259 with names that occur once in their object: NaN and repeated names are no JSON, however Python reads them.
The schema is the task's and is checked; a schema that is wrong, or refers to another document, is an error of the verifier.
What a model wrote is bounded in length and depth before it is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ingot.envs.verifiers.errors import VerifierError
from ingot.workspace.packages import install_extra

LONGEST, DEEPEST = 200_000, 64


def fits_schema(content: str, schema: Mapping[str, Any] | bool) -> bool:
    """True if the content is one JSON value that is valid under the schema."""
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(schema, sort_keys=True))
    if len(content) > LONGEST:
        return False
    try:
        value = json.loads(content, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return False
    if _depth(value) > DEEPEST:
        return False
    try:
        return bool(validator.is_valid(value))
    except Unresolvable as error:
        raise VerifierError(
            f"the schema refers to something unknown: {error}", place="schema", fix="write all of it into one document"
        ) from None


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """A validator for the draft that `$schema` names, by default 2020-12; formats are checked and nothing is fetched."""
    try:
        import jsonschema
        import referencing
    except ModuleNotFoundError:
        raise VerifierError("schemas need the package jsonschema", fix=install_extra("envs")) from None
    value = json.loads(schema)
    kind = jsonschema.validators.validator_for(value, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(value)
    except jsonschema.SchemaError as error:
        raise VerifierError(f"not a JSON schema: {error.message}", place=error.json_path) from None
    return kind(value, registry=referencing.Registry(), format_checker=kind.FORMAT_CHECKER)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _depth(value: Any) -> int:
    """How many lists and objects lie inside each other."""
    depth, level = 0, [value]
    while level := [inner for one in level for inner in _children(one)]:
        depth += 1
    return depth


def _children(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
