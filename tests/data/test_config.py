"""The configuration: what a user may write, and what is said when it is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ingot.data.config import (
    CurateConfig,
    DecontaminateStep,
    FilesSource,
    GopherQualityStep,
    NearDedupStep,
    PythonSource,
)
from ingot.workspace.config import content_hash

QUALITY = {"step": "quality"}
SPLIT = {"step": "split"}


def message(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        CurateConfig(**values)
    return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in caught.value.errors())


def test_a_recipe_as_a_user_writes_it() -> None:
    config = CurateConfig(
        **yaml.safe_load(
            """
            sources:
              - {python: installed}
              - {files: "corpus/*.jsonl.gz", name: mine, text: body}
            max_bytes: 40_000_000
            steps:
              - step: split
              - {step: gopher_quality, min_words: 20}
              - step: near_dedup
              - {step: decontaminate, against: [evals/*.jsonl], texts: ["What is {a} + {b}?"]}
              - step: quality
            """
        )
    )
    assert isinstance(config.sources[0], PythonSource)
    assert isinstance(config.sources[1], FilesSource)
    assert [step.step for step in config.steps] == ["split", "gopher_quality", "near_dedup", "decontaminate", "quality"]
    assert isinstance(config.steps[1], GopherQualityStep)
    assert config.steps[1].min_words == 20
    assert CurateConfig(**config.model_dump()) == config
    assert content_hash(CurateConfig(**config.model_dump(mode="json"))) == content_hash(config)


def test_defaults() -> None:
    config = CurateConfig()
    names = [
        "split",
        "exact_dedup",
        "gopher_quality",
        "language",
        "gopher_repetition",
        "code_rules",
        "near_dedup",
        "quality",
    ]
    assert [step.step for step in config.steps] == names
    assert config.sources == [PythonSource()]
    assert NearDedupStep().bands == 14


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"sources": []}, "sources: List should have at least 1 item"),
        ({"sources": [{"web": "x"}]}, "sources.0: a source is {python: installed} or {files: PATTERN}"),
        ({"sources": [{"python": "3.12"}]}, "sources.0.python.python: Input should be 'installed'"),
        ({"sources": [{"files": "x", "colum": "y"}]}, "sources.0.files.colum: Extra inputs are not permitted"),
        ({"sources": [{"files": "x", "name": "My Texts"}]}, "source name 'My Texts' cannot name a folder"),
        ({"sources": [{"files": "x", "name": "validation"}]}, "source name 'validation' cannot name a folder"),
        ({"sources": [{"files": "x"}, {"files": "y"}]}, "two sources have the same name"),
        ({"max_bytes": 0}, "max_bytes: Input should be greater than 0"),
        ({"steps": [{"step": "splitt"}]}, "does not match any of the expected tags: 'split'"),
        ({"steps": [QUALITY]}, "step `quality` needs the kind column: put {step: split} before it"),
        ({"steps": [{"step": "language"}, SPLIT, QUALITY]}, "step `language` needs the kind column"),
        ({"steps": [SPLIT]}, "the documents need a quality column: add {step: quality}"),
        (
            {"steps": [SPLIT, {"step": "decontaminate"}, QUALITY]},
            "nothing to compare with: give eval files in `against`",
        ),
        (
            {"steps": [SPLIT, {"step": "gopher_repetition", "max_top_ngram_characters": {2: 1.5}}, QUALITY]},
            "expected {words in the n-gram (>= 1): share of the characters (0 to 1)}",
        ),
        ({"steps": [SPLIT, {"step": "gopher_quality", "min_words": "few"}, QUALITY]}, "should be a valid integer"),
    ],
)
def test_errors(values: dict[str, Any], part: str) -> None:
    assert part in message(**values)


def test_every_field_is_documented() -> None:
    for name, schema in CurateConfig.model_json_schema()["$defs"].items():
        for field, properties in schema["properties"].items():
            assert properties.get("description"), f"{name}.{field}"


def test_steps_are_frozen() -> None:
    step: Any = DecontaminateStep(texts=["x"])
    with pytest.raises(ValidationError):
        step.min_words = 3


def test_config_imports_nothing_heavy() -> None:
    program = "import sys, ingot.data.config; print(*{'torch', 'pyarrow', 'numpy', 'tokenizers'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == ""
