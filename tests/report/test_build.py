"""The page: hostile text stays text, nothing is loaded, the size stays modest, the numbers are those of the files."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.report.build import build, page
from ingot.report.inline import embed
from ingot.report.read import read_run

from .example_documents import HOSTILE
from .example_scores import claims
from .run_files import TRAINED, entries, rows_of, value_of


class Elements(HTMLParser):
    """What a parser sees in a page: start tags, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in self.raw:
            self.raw[self.cdata_elem][-1] += data


@pytest.fixture(scope="module")
def report(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report") / "page.html"
    assert build(finished_run, out) == out
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(report: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Elements(report).raw["script"][0])
    return content


def test_the_report_lies_in_the_run_and_is_written_whole(finished_run: Path) -> None:
    path = build(finished_run)
    assert path == finished_run / "report.html"
    assert not list(finished_run.glob("*.partial"))
    path.unlink()


def test_a_folder_to_write_to_gets_the_page(finished_run: Path, tmp_path: Path) -> None:
    assert build(finished_run, tmp_path) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_hostile_text_adds_no_element(report: str) -> None:
    """A run of plain names gives exactly the same elements as one full of markup."""
    seen = Elements(report)
    plain = Elements(page({"name": "plain"}))
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in plain.tags]
    assert len(seen.raw["script"]) == 2
    assert report.count("</script") == 2


def test_hostile_text_arrives_unchanged(data: dict[str, Any]) -> None:
    shown = [sample["text"] for sample in data["funnels"][0]["removed"]["quality_rules"]["samples"]]
    assert set(HOSTILE[:6]) <= set(shown)
    assert data["name"] == "quickstart <script>alert('name')</script>"


@given(
    st.recursive(
        st.text() | st.floats() | st.none() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_embedded_json_means_the_same_and_cannot_leave_its_element(value: Any) -> None:
    text = embed(value)
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff]", text)
    text.encode("utf-8")

    def finite(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: finite(each) for key, each in item.items()}
        if isinstance(item, list):
            return [finite(each) for each in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    assert json.loads(text) == finite(value)


def test_lone_surrogates_survive() -> None:
    assert json.loads(embed(["\ud83d alone", "🧪"])) == ["\ud83d alone", "🧪"]


def test_only_the_own_script_and_style_may_run(report: str) -> None:
    seen = Elements(report)
    policy = next(
        attributes["content"]
        for tag, attributes in seen.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for text, directive in ((seen.raw["script"][1], "script-src"), (seen.raw["style"][0], "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy and "http" not in policy


def test_nothing_is_loaded_from_anywhere(report: str) -> None:
    for tag, attributes in Elements(report).tags:
        for name in ("src", "href", "action", "data", "srcset", "style", "onload", "onclick", "onerror"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/svg+xml,")), (tag, name, value)
    style = Elements(report).raw["style"][0]
    assert "url(" not in style and "@import" not in style


def test_the_size_is_modest(report: str) -> None:
    """Of the page itself, and of what it holds of this run: the longest texts and thousands of points are left out."""
    itself = len(page({"name": "plain"}).encode("utf-8"))
    assert itself < 175_000
    assert len(report.encode("utf-8")) - itself < 840_000


def test_template_marks_in_the_data_are_not_filled_in(report: str) -> None:
    assert "{{data}} {{script}}" in report  # as it stands in a hostile document


@pytest.fixture(scope="module")
def real(real_page: Path) -> dict[str, Any]:
    """The data of the page of a real run."""
    content: dict[str, Any] = json.loads(Elements(real_page.read_text(encoding="utf-8")).raw["script"][0])
    return content


def test_the_table_has_the_numbers_of_the_files(real: dict[str, Any], real_run: Path) -> None:
    table = real["evaluations"]
    assert [each["name"] for each in table["checkpoints"]] == list(TRAINED)
    scores = {stage: value_of(real_run, f"eval-{stage}", "scores/scores.json") for stage in TRAINED}
    assert {row["metric"] for row in table["rows"]} == set(scores["sft"])
    for row in table["rows"]:
        for index, stage in enumerate(TRAINED):
            expected, cell = scores[stage][row["metric"]], row["cells"][index]
            assert (cell["value"], cell["standard_error"]) == (expected["value"], expected["standard_error"])
            if index:
                before = scores[TRAINED[index - 1]][row["metric"]]["value"]
                assert cell["change"] == pytest.approx(expected["value"] - before, abs=1e-12)


def test_every_section_has_what_the_stages_wrote(real: dict[str, Any], real_run: Path) -> None:
    names = [entry["name"] for entry in entries(real_run)]
    assert [stage["name"] for stage in real["stages"]] == names and real["problems"] == []
    verdict = value_of(real_run, "verdict", "verdict/verdict.json")
    assert real["verdicts"] == [{"stage": "verdict", "claims": verdict["claims"]}]
    (funnel,) = real["funnels"]
    removed = rows_of(real_run, "curate", "documents/removed.jsonl")
    counts = Counter(row["step"] for row in removed)
    assert {step: part["total"] for step, part in funnel["removed"].items()} == counts
    statistics = value_of(real_run, "tokenizer", "tokenizer/statistics.json")
    assert real["tokenizers"] == [{"stage": "tokenizer", "statistics": statistics}]
    assert [each["stage"] for each in real["curves"]] == list(TRAINED)
    tasks = {row["task_id"] for row in rows_of(real_run, "eval-sft", "scores/samples.jsonl")}
    assert {task["id"] for task in real["generations"]["tasks"]} == tasks and real["generations"]["total"] == len(tasks)
    for part, stage in zip(real["rollouts"], ("rl", "distill"), strict=True):
        rows = rows_of(real_run, stage, "trajectories.jsonl")
        assert (part["stage"], part["total"]) == (stage, len(rows))
        assert {each["step"]: each["total"] for each in part["steps"]} == Counter(row["step"] for row in rows)


def test_a_real_run_gives_a_modest_page_without_paths_of_the_machine(real_page: Path, real_run: Path) -> None:
    text = real_page.read_text(encoding="utf-8")
    assert len(text.encode("utf-8")) < 1_000_000
    assert str(real_run) not in text


def test_changes_are_paired_where_the_tasks_are_known(data: dict[str, Any]) -> None:
    """The needle of distill: 5 of 100 shared tasks flipped to right, so SE = sqrt(0.05 * 0.95 * 100/99 / 100)."""
    row = next(row for row in data["evaluations"]["rows"] if row["metric"] == "needle/512")
    assert row["cells"][5]["change_error"] == pytest.approx(math.sqrt(0.05 * 0.95 / 99), rel=1e-12)
    assert row["cells"][5]["certain"] is True
    unpaired = next(row for row in data["evaluations"]["rows"] if row["metric"] == "accuracy/arithmetic")
    errors = [cell["standard_error"] for cell in unpaired["cells"]]
    assert unpaired["cells"][3]["change_error"] == pytest.approx(math.hypot(errors[2], errors[3]), rel=1e-12)


def test_claims_keep_all_their_numbers(data: dict[str, Any]) -> None:
    assert data["verdicts"] == [{"stage": "verdict", "claims": claims()}]


def test_two_evaluations_of_one_checkpoint_have_names_of_their_own(finished_run: Path) -> None:
    from ingot.report.evaluations import evaluations

    stages = [stage for stage in read_run(finished_run).stages if stage.name in ("eval-sft", "eval-rl")]
    stages[1].inputs = {"checkpoint": ["sft"]}
    assert [name for name, _ in evaluations(stages)] == ["sft (eval-sft)", "sft (eval-rl)"]


def test_no_machine_path_is_shown(report: str, finished_run: Path) -> None:
    assert str(finished_run) not in report and "/somewhere/" not in report
