"""The report of a run that real stages wrote, in a real browser: what is shown are the numbers of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .browsing import CHROMIUM, NARROW, SECTIONS, WIDE, Open, four_digits, overflow, texts
from .conftest import Window
from .example_documents import HOSTILE
from .run_files import TRAINED, entries, folder_of, rows_of, value_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def window(browser: Any, real_page: Path) -> Iterator[Window]:
    window = Window(browser).show(real_page)
    yield window
    window.context.close()


@pytest.fixture
def opened(window: Window) -> Iterator[Any]:
    """The report in a window that these tests share: each operates its own part of the page."""
    yield window.page
    assert window.troubles == []


def test_header_flow_and_stages(opened: Any, real_run: Path) -> None:
    stages = entries(real_run)
    assert opened.locator("h1").inner_text() == "quickstart"
    facts = dict(zip(texts(opened, "#facts dt"), texts(opened, "#facts dd"), strict=True))
    assert (facts["Seed"], facts["Stages"]) == ("1", f"{len(stages)} of {len(stages)} finished")
    assert texts(opened, "#verdict-badge") == ["✓ All 2 claims held"]
    assert opened.locator("#problems").is_hidden() and opened.locator("section .empty").count() == 0
    assert opened.locator(".flow a.stage").count() == len(stages)
    for entry in stages:
        details = opened.locator(f"#stage-{entry['name']}")
        details.locator("summary").click()
        written = (folder_of(real_run, entry["name"]) / "recipe.yaml").read_text(encoding="utf-8")
        shown = details.locator(".yaml").evaluate("element => element.textContent")
        assert shown == written.replace(f"{real_run}/", "").rstrip()


def test_table_of_evaluations(opened: Any, real_run: Path) -> None:
    assert texts(opened, ".evals thead th") == ["Metric", "Trend", *TRAINED]
    scores = [value_of(real_run, f"eval-{stage}", "scores/scores.json") for stage in TRAINED]
    for metric in ("bits_per_byte", "format/all", "accuracy/strings", "needle/512"):
        row = opened.locator(f'.evals tr[data-metric="{metric}"] td:not(.trend) .value')
        shown = [float(re.match(r"[\d.]+", cell)[0]) for cell in row.all_inner_texts()]  # type: ignore[index]
        assert shown == pytest.approx([score[metric]["value"] for score in scores], abs=6e-4)


def test_funnel_and_removed_documents(opened: Any, real_run: Path) -> None:
    funnel = value_of(real_run, "curate", "documents/funnel.json")
    rows = opened.locator(".funnel-row:not(.kept-row)")
    assert rows.count() == len(funnel)
    for index, step in enumerate(funnel):
        label = rows.nth(index).get_attribute("aria-label")
        assert label.startswith(f"{step['step'].replace('_', ' ')}: {step['documents_in']:,} ")
        rows.nth(index).click()
        assert texts(opened, "#data .rule") == [
            f"{rule.replace('_', ' ').rstrip(':')} {count:,}"
            for rule, count in sorted(step["reasons"].items(), key=lambda item: -item[1])
        ]
    measure = "const bar = row.querySelectorAll('.kept'); return [...bar].at(-1).offsetWidth / bar[0].parentElement.offsetWidth;"
    shares = rows.evaluate_all(f"rows => rows.map(row => {{ {measure} }})")
    read = funnel[1]["bytes_in"]  # a budget left most files unread: bytes are measured against those that were read
    assert shares[1:] == pytest.approx(
        [min(step["bytes_out"], step["bytes_in"]) / read for step in funnel[1:]], abs=0.02
    )
    rows.nth([step["step"] for step in funnel].index("gopher_quality")).click()
    opened.locator("#data input[type=search]").fill("owned")
    opened.get_by_label("all steps").check()
    shown = opened.locator("#data .sample .text").evaluate_all("all => all.map(one => one.textContent)")
    assert HOSTILE[1] in shown and opened.title() == "quickstart · Ingot report"


def test_curves(opened: Any, real_run: Path) -> None:
    opened.locator("#curves").get_by_text("step", exact=True).click()
    chart = opened.locator("[data-metric=reward] svg.chart")
    chart.focus()
    opened.keyboard.press("Home")
    tip = re.sub(r"\s+", " ", opened.locator("#tip").inner_text())
    for stage in ("rl", "distill"):
        row = rows_of(real_run, stage, "metrics.jsonl")[0]
        assert f"{stage} {four_digits(row['reward'])} step {row['step']} · " in tip
    assert opened.locator("[data-metric=loss] path.line").count() == len(TRAINED)


def test_generations_and_rollouts(opened: Any, real_run: Path) -> None:
    opened.locator("#generations select").first.select_option(label="strings")
    task = opened.locator("#generations details.task").first
    task.locator("summary").click()
    task.locator(".answer").last.wait_for()
    prompt = next(
        row for row in rows_of(real_run, "eval-sft", "scores/samples.jsonl") if row["prompt"] in task.inner_text()
    )
    for stage in TRAINED:
        rows = rows_of(real_run, f"eval-{stage}", "scores/samples.jsonl")
        answer = task.locator(".answer", has=opened.locator(f"h4 :text-is('{stage}')"))
        assert answer.locator(".text").evaluate_all("all => all.map(one => one.textContent)") == [
            row["completion"] for row in rows if row["task_id"] == prompt["task_id"]
        ]
    rows = rows_of(real_run, "rl", "trajectories.jsonl")
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    section = opened.locator("#rollouts")
    assert section.locator(".step-label").inner_text() == f"step {rows[-1]['step']}"
    section.locator(".rollout-item").first.click()
    first = [row for row in last if row["group"] == 0]
    given = len(first[0]["nodes"][0]["pieces"])
    pieces = sum(len(node["pieces"]) for row in first for node in row["nodes"][1:])
    assert len(first) == 4 and section.locator(".attempt .token").count() == pieces
    assert section.locator(".given-prompt .token").count() == given
    assert texts(opened, "#rollouts .choice label") == ["advantage", "log-ratio", "log-probability", "entropy", "age"]


@pytest.mark.slow  # the page of the example: test_browser.py
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_nothing_sticks_out(open_page: Open, real_page: Path, width: int) -> None:
    page = open_page(real_page, width=width)
    for section in SECTIONS:
        page.locator(f"#nav a[href='#{section}']").click()
        assert page.locator(f"#{section}").is_visible()
    for summary in page.locator("#stages summary").all():
        summary.click()
    page.locator("#generations").get_by_role("button", name="Open all").click()
    assert overflow(page) == 0
