"""The options: what is refused, and that reading them loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from ingot.tokens.config import TokenizeConfig, TokenizerConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sources": {"validation": {}}}, "give the source another name"),
        ({"sources": {"../up": {}}}, "it names a folder"),
        ({"sources": {}}, "at least 1 item"),
        ({"sources": {"a": {"kind": "poetry"}}}, "prose"),
        ({"validation_share": 0}, "greater than 0"),
    ],
)
def test_tokenize_refuses(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenizeConfig.model_validate(values)


def test_tokenizer_needs_room_for_bytes_and_special_tokens() -> None:
    with pytest.raises(ValidationError, match="272"):
        TokenizerConfig(vocabulary_size=271)


def test_every_option_is_described() -> None:
    for config in (TokenizerConfig, TokenizeConfig):
        assert all(field.description for field in config.model_fields.values())


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys, ingot.tokens.config;"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'tokenizers', 'jinja2') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
