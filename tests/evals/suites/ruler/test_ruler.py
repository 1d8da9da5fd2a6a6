"""RULER: prompts and scores equal those of NVIDIA's own scripts (recorded), and the suite asks and counts as it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.bases.suite import Subject
from ingot.evals.engine.prompt import chat_tokens, plain_text
from ingot.evals.engine.request import Conversation, Generation, Question, Written
from ingot.evals.suites.ruler import Ruler, SampleResult
from ingot.evals.suites.ruler.score import any_contained, share_contained
from ingot.evals.suites.ruler.vocabulary import Pairs
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import TEMPLATE_FILE, Tokenizer
from ingot.workspace.errors import RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.evals.suites.ruler import cases
from tests.evals.suites.ruler.record_ruler import FILE, digest
from tests.making.rows import write_rows
from tests.slow import first_fast

RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def subject(shared_data: Path) -> Subject:
    return Subject("SmolLM2", "text", StopSignal(), given_tokenizer=cases.tokenizer(shared_data), data=shared_data)


@pytest.fixture(scope="session")
def files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("ruler")
    contents = {
        "essays": [{"text": cases.essay(shared_data)}],
        "squad": cases.squad_rows(shared_data),
        "hotpotqa": cases.hotpotqa_rows(shared_data),
    }
    for name, rows in contents.items():
        write_rows(folder / f"{name}.jsonl", rows)
    return {name: (str(folder / f"{name}.jsonl"),) for name in contents}


@pytest.mark.parametrize("length", first_fast(sorted(cases.LENGTHS)))
def test_prompts_are_those_of_nvidias_scripts(length: int, subject: Subject, files: dict[str, tuple[str, ...]]) -> None:
    suite = Ruler(lengths=(length,), count=cases.COUNT, **files)
    found: dict[str, list[str]] = {}
    for asked in suite.samples(subject):
        found.setdefault(f"{asked.task}/{asked.length}", []).append(
            digest(asked.sample.whole, list(asked.sample.answers))
        )
    expected = {name: each for name, each in RECORDED["prompts"].items() if name.endswith(f"/{length}")}
    assert len(found) == 13 and found == expected


def test_scores_are_those_of_nvidias_scorer() -> None:
    tried = cases.answers()
    assert len(tried) == len(RECORDED["scores"]) > 200
    for (answer, references), (by_all, by_any) in zip(tried, RECORDED["scores"], strict=True):
        assert round(100 * share_contained(answer, references), 2) == by_all, (answer, references)
        assert 100 * any_contained(answer, references) == by_any, (answer, references)
    assert {by_all for by_all, _ in RECORDED["scores"]} >= {0.0, 25.0, 33.33, 100.0}


def test_keys_are_in_alphabetical_order() -> None:
    """Adjectives that continue others, with a hyphen or without, are the only ones whose pairs mix."""
    adjectives = ["old", "old-fashioned", "older", "ad hoc", "a", "wide-eyed", "old"]
    nouns = ["man", "fashion", "fashioned", "gate", "back-up", "zoo"]
    every = sorted({f"{adjective}-{noun}" for adjective in adjectives for noun in nouns})
    pairs = Pairs(adjectives, nouns)
    assert [pairs[number] for number in range(len(pairs))] == every and pairs[1:3] == every[1:3]
    with pytest.raises(IndexError):
        pairs[len(every)]


def test_suite(subject: Subject, files: dict[str, tuple[str, ...]]) -> None:
    """What is asked, and what right, half right and wrong answers score."""
    suite = Ruler(lengths=(1024,), tasks=("niah_multiquery", "vt", "qa_1"), count=9, **files)
    limited = replace(subject, limit=4)
    asked = list(suite.samples(limited))
    measuring = suite.measure(limited)
    requests = next(measuring)
    assert len(requests) == 12
    for request, each in zip(requests, asked, strict=True):
        assert isinstance(request, Generation) and isinstance(request.prompt, Question)
        size = len(subject.tokenizer.encode(plain_text(request.prompt))) + request.max_new_tokens
        assert 700 < size <= 1024, (each.task, size)
        assert plain_text(request.prompt) == each.sample.whole
    assert [request.max_new_tokens for request in requests[::4]] == [128, 30, 32]  # type: ignore[union-attr]
    texts = [" ".join(each.sample.answers) for each in asked[:4]]
    texts += ["", backwards(asked[5]), *(" ".join(each.sample.answers).lower() for each in asked[6:8])]
    texts += [each.sample.answers[-1].upper() for each in asked[8:11]] + ["I do not know."]
    with pytest.raises(StopIteration) as stopped:
        measuring.send([Written(text, None, "stop", 9) for text in texts])
    metrics = {each.name: each for each in stopped.value.value.metrics}
    values = {name: each.estimate.value for name, each in metrics.items()}
    assert values["ruler/niah_multiquery/1024"] == 1 and values["ruler/qa_1/1024"] == 0.75
    assert values["ruler/vt/1024"] == pytest.approx((0 + 0 + 1 + 1) / 4)
    assert values["ruler/1024"] == pytest.approx((1 + 0.75 + 0.5) / 3)
    clusters = metrics["ruler/qa_1/1024"].clusters
    same = [each.sample.cluster for each in asked if each.task == "qa_1"]
    assert len(set(clusters.values())) == len(set(same)) and len(clusters) == 4


def backwards(asked: SampleResult) -> str:
    """Every name of the answer, spelled backwards."""
    return " ".join(answer[::-1] for answer in asked.sample.answers)


def test_a_conversation_leaves_room_for_its_template(subject: Subject, shared_data: Path) -> None:
    template = (shared_data / "tokenizers" / "smollm2_chat_template.jinja").read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_files({**subject.tokenizer.files, TEMPLATE_FILE: template.encode()}, "SmolLM2")
    chat = replace(subject, form="chat", given_tokenizer=tokenizer)
    suite = Ruler(lengths=(512,), tasks=("niah_single_1", "fwe"), count=2)
    for each in suite.samples(chat):
        question = Conversation((Message("user", each.sample.text),), start=each.sample.start)
        assert len(chat_tokens(ChatFormat(tokenizer), question, thinking=True)) + {"fwe": 50}.get(each.task, 128) <= 512


def test_a_length_that_is_too_short_is_an_error(subject: Subject, files: dict[str, tuple[str, ...]]) -> None:
    for task in ("niah_single_1", "niah_multikey_1", "vt", "fwe", "qa_1", "cwe"):
        with pytest.raises(RecipeError, match="no sample fits into 100 tokens"):
            list(Ruler(lengths=(100,), tasks=(task,), count=1, **files).samples(subject))
    with pytest.raises(RecipeError, match="there are 200 questions"):
        list(Ruler(lengths=(4096,), tasks=("qa_1",), count=300, **files).samples(subject))
