"""The configuration: what a user may write, and what is said when it is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ingot.data.config import CurateConfig, labels
from ingot.data.outside import STEPS
from ingot.data.read.config import FilesSource, PythonSource
from ingot.data.steps.gopher_quality import GopherQualityStep
from ingot.data.steps.near_dedup import NearDedupStep
from ingot.workspace.config import Config, content_hash

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
        "extract_html",
        "split",
        "exact_dedup",
        "gopher_quality",
        "english",
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
        (
            {"sources": [{"web": "x"}]},
            "sources.0: a source is {python: installed}, {files: PATTERN}, {code: FOLDER} or",
        ),
        ({"sources": [{"python": "3.12"}]}, "sources.0.python.python: Input should be 'installed'"),
        ({"sources": [{"files": "x", "colum": "y"}]}, "sources.0.files.colum: Extra inputs are not permitted"),
        ({"sources": [{"files": "x", "name": "My Texts"}]}, "source name 'My Texts' cannot name a folder"),
        ({"sources": [{"files": "x", "name": "validation"}]}, "source name 'validation' cannot name a folder"),
        ({"sources": [{"files": "x"}, {"files": "y"}]}, "two sources have the same name"),
        ({"max_bytes": 0}, "max_bytes: Input should be greater than 0"),
        ({"engine": "spark"}, "engine: Input should be 'local' or 'ray'"),
        ({"steps": [{"step": "splitt"}]}, "there is no data step splitt (fix: did you mean split?)"),
        (
            {"steps": [{"step": "gopher_quality", "where": {"language": "en"}}]},
            "step `gopher_quality` (number 1) reads the column `language`, which no source has and no earlier step writes",
        ),
        (
            {"steps": [SPLIT, {"step": "exact_dedup", "keep": "best"}, QUALITY]},
            "step `exact_dedup` (number 2) reads the column `quality`, which no source has and no earlier step writes; "
            "step `quality` writes it: put that first",
        ),
        (
            {"steps": [SPLIT, {"step": "decontaminate"}, QUALITY]},
            "nothing to compare with: give eval files in `against`",
        ),
        ({"steps": [SPLIT, {"step": "gopher_quality", "min_words": "few"}, QUALITY]}, "should be a valid integer"),
    ],
)
def test_errors(values: dict[str, Any], part: str) -> None:
    assert part in message(**values)


def test_every_field_is_documented() -> None:
    configs: list[type[Config]] = [CurateConfig, FilesSource, PythonSource, *STEPS.builtin().values()]
    for config in configs:
        for name, field in config.model_fields.items():
            assert field.description, f"{config.__name__}.{name}"


def test_columns_that_a_source_keeps_may_be_read() -> None:
    steps: list[Any] = [{"step": "gopher_quality", "where": {"licence": ["mit", "apache-2.0"]}}]
    with pytest.raises(ValidationError, match="reads the column `licence`"):
        CurateConfig(sources=[{"files": "x"}], steps=steps)
    CurateConfig(sources=[{"files": "x", "keep": {"licence": "string"}}], steps=steps)


def test_how_the_work_is_done_is_no_part_of_what_it_is() -> None:
    changed = CurateConfig(engine="ray", workers=7, stall_seconds=5, work_folder="x", keep_work=False, copy_to="y")
    assert content_hash(changed.work()) == content_hash(CurateConfig().work())
    assert content_hash(CurateConfig(samples=1).work()) != content_hash(CurateConfig().work())


def test_a_step_that_is_there_again_has_a_name_of_its_own() -> None:
    steps: list[Any] = [QUALITY, SPLIT, QUALITY, QUALITY]
    assert labels(CurateConfig(steps=[SPLIT, *steps]).steps) == [
        "split",
        "quality",
        "split 2",
        "quality 2",
        "quality 3",
    ]


def test_config_imports_nothing_heavy() -> None:
    program = "import sys, ingot.data.config; print(*{'torch', 'numba', 'tokenizers', 'fsspec'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == ""
