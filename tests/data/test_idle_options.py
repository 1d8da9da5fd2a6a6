"""Options of curate that would do nothing are refused when the recipe is read; where they act they are taken.

Beside a table of them, every step is run on a few documents, and each of its options that nothing has looked at has to be
refused when it is set to something else: an option that a mode ignores cannot come in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ingot.data.apply import apply
from ingot.data.config import CurateConfig
from ingot.data.outside import STEPS
from ingot.data.read.config import DatasetSource, FilesSource
from ingot.data.read.dataset import dataset_files
from ingot.data.step import Step
from ingot.workspace.errors import DataError
from tests.data.dirty import CODE, article
from tests.data.rules.outside import COMPRESSION_RATIO, LINE_MODIFIERS, MADLAD
from tests.making.rows import write_rows
from tests.recipe.options.reads import noted_reads, options_of, other_values
from tests.slow import first_fast

LISTS = [{"name": "one", "file": "list.txt"}]
DECON = {"texts": ["a question"]}

IDLE: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [  # step, options, one that is idle, what makes it act
    *(("decon", {**DECON, "answers": False}, {name: 7}, {"answers": True}) for name in (
        "answer_ngram", "short_answer", "answer_window", "long_answer_window",
    )),
    *(("decon", {**DECON, "passages": False}, {name: 7}, {"passages": True}) for name in (
        "passage_ngram", "passage_window", "passage_misses",
    )),
    *(("decon", DECON | {f"{each}s": False}, {"against": [{"files": "x", "question": "", each: "f"}]}, {f"{each}s": True})
      for each in ("answer", "passage")),
    ("exact_dedup", {}, {"min_bytes": 9}, {"scope": "line"}),
    ("exact_dedup", {}, {"max_removed": 0.5}, {"scope": "paragraph"}),
    ("exact_dedup", {"keep": "first"}, {"keep_column": "score"}, {"keep": "best"}),
    ("near_dedup", {"keep": "longest"}, {"keep_column": "score"}, {"keep": "newest"}),
    ("semantic_dedup", {"embedding_column": "e", "keep": "first"}, {"keep_column": "score"}, {"keep": "best"}),
    ("semantic_dedup", {"embedding_column": "e"}, {"max_tokens": 9}, {"embedding_column": None, "model": "folder"}),
    ("extract_html", {"method": "fast"}, {"seconds": 3}, {"method": "precise"}),
    ("extract_html", {}, {"seconds": 3}, {"method": "precise"}),
    ("licence", {}, {"unknown": "remove"}, {"permissive": True}),
    ("licence", {}, {"unknown": "remove"}, {"allowed": ["MIT"]}),
    ("pii", {"emails": False}, {"email_replacements": ["x"]}, {"emails": True}),
    ("pii", {"ips": False}, {"ip_replacements": ["x"]}, {"ips": True}),
    ("pii", {"ips": False}, {"public_ips_only": False}, {"ips": True}),
    ("pii", {}, {"phone_replacements": ["x"]}, {"phones": True}),
    ("safety", {"lists": LISTS, "action": "mark"}, {"maximum": 3}, {"action": "remove"}),
    ("safety", {"model": "m", "label": "l", "action": "mark"}, {"max_probability": 0.9}, {"action": "remove"}),
    ("safety", {"lists": LISTS}, {"max_probability": 0.9}, {"model": "m", "label": "l"}),
    ("safety", {"model": "m", "label": "l"}, {"maximum": 3}, {"lists": LISTS}),
    ("upsample", {"tokens": "count"}, {"bytes_per_token": 3}, {"tokens": None}),
    ("url_filter", {"domains": ["x"]}, {"min_soft_words": 3}, {"soft_banned_words": ["y"]}),
    (MADLAD, {"rules": [2, 3]}, {"cursed": ["xyz"]}, {"rules": [5]}),
    ("gopher_quality", {"min_stop_words": 0}, {"stop_words": ["der"]}, {"min_stop_words": 1}),
    ("gopher_quality", {"min_stop_words": 0}, {"count_stop_words": "all"}, {"min_stop_words": 1}),
    (LINE_MODIFIERS, {"phrases": {}}, {"max_phrase_words": 5}, {"phrases": {"Read on": "any"}}),
]  # fmt: skip


@pytest.mark.parametrize(("step", "options", "idle", "acts"), IDLE)
def test_an_idle_option_is_refused(
    step: str, options: dict[str, Any], idle: dict[str, Any], acts: dict[str, Any]
) -> None:
    [name] = idle
    with pytest.raises(ValidationError, match=f"{name}.*leave it out"):
        STEPS.read({"step": step, **options, **idle})
    STEPS.read({"step": step, **options, **idle, **acts})
    spelt_out = STEPS.read({"step": step, **options}).model_dump()
    assert STEPS.read(spelt_out) == STEPS.read({"step": step, **options}), "defaults that are spelt out are no choice"


@pytest.mark.parametrize(("step", "problem"), [("pii", "nothing to mask"), ("url_filter", "nothing to look for")])
def test_a_step_that_would_do_nothing(step: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        STEPS.read({"step": step} | ({"emails": False, "ips": False} if step == "pii" else {}))


def test_idle_options_of_the_stage_and_its_sources(tmp_path: Path) -> None:
    with pytest.raises(
        ValidationError, match="ray_address: engine: local asks no cluster; leave it out, or set engine: ray"
    ):
        CurateConfig(ray_address="auto")
    CurateConfig(ray_address="auto", engine="ray")
    for form in ("text", "html", "warc", "mediawiki"):
        for given in ({"text": "content"}, {"id": "key"}, {"keep": {"score": "number"}}):
            with pytest.raises(ValidationError, match=f"{next(iter(given))}: format: {form} has no columns"):
                FilesSource.model_validate({"files": "x", "format": form, **given})
            FilesSource.model_validate({"files": "x", "format": "csv", **given})
    with pytest.raises(ValidationError, match="cut_at: only text files are cut"):
        FilesSource(files="x", format="html", cut_at=5000)
    FilesSource(files="x", format="text", cut_at=5000)
    with pytest.raises(DataError, match="configuration: en: a folder has none"):
        dataset_files(DatasetSource(dataset=str(tmp_path), configuration="en"))


MODES: list[tuple[str, dict[str, Any]]] = [
    ("licence", {}), ("pii", {}),
    ("decon", {}), ("decontaminate", {}), ("decon", {"passages": False}), ("decon", {"answers": False}),
    ("decontaminate", {"weights": "corpus"}), ("decon", {"weights": "corpus"}),
    ("bad_words", {}), ("c4", {}), ("code_language", {}), ("code_rules", {}), (COMPRESSION_RATIO, {}), ("english", {}),
    *(("exact_dedup", {"scope": scope}) for scope in ("document", "paragraph", "line")), ("exact_dedup", {"keep": "best"}),
    *(("extract_html", {"method": method}) for method in ("best", "fast", "precise")),
    ("fineweb", {}), ("fix_text", {}), ("gopher_quality", {}), ("gopher_repetition", {}),
    ("gopher_repetition", {"counting": "datamap"}), ("language", {}), ("language", {"unit": "line"}), ("length", {}),
    ("licence", {"permissive": True}), (LINE_MODIFIERS, {}), (MADLAD, {}), ("near_dedup", {}),
    ("near_dedup", {"shingles": "characters"}), ("near_dedup", {"min_jaccard": None}), ("newlines", {}), ("normalise", {}),
    ("pii", {"emails": False}), ("pii", {"ips": False}), ("pii", {"phones": True}), ("quality", {}),
    ("repeated_ngrams", {}), ("safety", {}), ("safety", {"action": "mark"}), ("semantic_dedup", {}), ("split", {}),
    ("substring_dedup", {}), ("upsample", {}), ("upsample", {"tokens": "score"}), ("url_filter", {}),
    ("url_filter", {"soft": True}), ("ventiles", {}), ("ventiles", {"tokens": "score"}),
]  # fmt: skip
NEED_A_MODEL = {"classify"}


def rows() -> list[dict[str, Any]]:
    """Documents of every kind that a step looks for."""
    texts = [article(number) for number in range(6)]
    texts += [
        f"{texts[0]} once more",
        "Write to ann@mail.org, 8.8.8.8, 10.0.0.1 or 212-555-0199.",
        CODE * 9,
        texts[1] * 60,
    ]
    texts += ["x = 1\n\nMore text. " + texts[2], "MIT\nSPDX-License-Identifier: MIT\n", f"{texts[3]}\n\n{texts[4]}"]
    texts += [f"<html><body><p>{texts[5]}</p></body></html>"]
    return [
        {
            "id": str(number), "text": text, "kind": "code" if text.startswith('"""') else "prose", "path": "a/b.py",
            "url": "https://www.example.com/soft/banned", "score": float(1 + number), "quality": number / 20,
            "topic": "ab"[number % 2], "quality_bucket": number % 20, "embedding": [1.0, number / 10.0], "date": "2024-01-02",
            "mime": "text/html" if text.startswith("<") else None,
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip


def step_of(name: str, options: dict[str, Any], folder: Path) -> Step:
    (folder / "list.txt").write_text("soft\nbanned\nnoun\n")
    write_rows(folder / "evals.jsonl", [{"question": article(0)[:200], "answer": "noun", "passage": "x"}])
    given: dict[str, dict[str, Any]] = {
        "bad_words": {"file": str(folder / "list.txt")},
        "decon": {"against": [str(folder / "evals.jsonl")]},
        "decontaminate": {"against": [str(folder / "evals.jsonl")]},
        "safety": {"lists": [{"name": "one", "file": str(folder / "list.txt")}]},
        "semantic_dedup": {"embedding_column": "embedding"},
        "url_filter": {"soft_banned_words" if options.get("soft") else "domains": [str(folder / "list.txt")]},
    }
    options = {key: value for key, value in options.items() if key != "soft"}
    return STEPS.read({"step": name, **given.get(name, {}), **options})


@pytest.mark.parametrize(("name", "options"), first_fast(MODES, 2))
def test_what_a_step_does_not_read_it_refuses(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    step = step_of(name, options, tmp_path)
    with noted_reads() as reads:
        apply(step, rows())
        step.say()
    seen = {option for owner, option in reads if isinstance(step, owner)}
    for _, owner, option, field in options_of(step):
        if owner is not step or option in seen:
            continue
        value = next(other_values(getattr(step, option), field))
        with pytest.raises(ValidationError, match=rf"error, .*\b{option}\b.*(leave it out|go together)"):
            STEPS.read(step.model_dump() | {option: value})


def test_every_step_is_tried() -> None:
    assert {name for name, _ in MODES if ":" not in name} | NEED_A_MODEL == set(STEPS.builtin())
