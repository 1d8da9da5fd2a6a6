"""The report in a real browser: opened from a file, at two widths and in two themes, by mouse and by keyboard.

Every page that these tests open is watched: a message on the console, an exception, or a request to anything but the
file itself fails the test.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import build
from tests.making.rows import write_rows
from tests.slow import first_fast

from .browsing import CHROMIUM, NARROW, SECTIONS, WIDE, Open, overflow, texts
from .example_documents import HOSTILE, funnel
from .example_run import FOLDERS, inputs
from .example_scores import TRAINED, scores

pytestmark = [
    pytest.mark.slow,  # half a minute of a browser; test_browser_real.py looks at the same page of a real run
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


def test_header_and_verdict(page: Any) -> None:
    assert page.locator("h1").inner_text() == "quickstart <script>alert('name')</script>"
    facts = dict(zip(texts(page, "#facts dt"), texts(page, "#facts dd"), strict=True))
    assert facts["Seed"] == "1" and facts["Date"] == "2026-11-15 08:30" and facts["Stages"] == "15 of 16 finished"
    assert facts["Total time"] == "8 min 6 s"  # 485.7 seconds
    assert texts(page, "#verdict-badge") == ["✕ 1 of 4 claims failed"]
    cards = texts(page, ".claim")
    assert len(cards) == 4
    assert "Bits per byte: pretrain below unigram by 1" in cards[0]
    assert "2.231" in cards[0] and "4.873" in cards[0] and "−2.642 ± 0.0062" in cards[0]
    assert "0.618" in cards[2] and "0.412" in cards[2] and "0.206 ± 0.021" in cards[2]
    assert "<b>not bold</b>" in cards[3] and "2.331" in cards[3]


def test_flow_shows_every_stage_and_input_and_leads_to_the_stage(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    boxes = page.locator(".flow a.stage")
    assert boxes.count() == len(FOLDERS)
    drawn = [
        value
        for stage in FOLDERS
        for role, value in inputs(stage).items()
        if not (stage.startswith("eval-") and role == "documents")  # which questions leaked: not what is measured
    ]
    edges = sum(len(value) if isinstance(value, dict) else 1 for value in drawn)
    assert page.locator(".flow .edge").count() == edges
    label = page.locator(".flow a[href='#stage-pretrain']").get_attribute("aria-label")
    assert label.startswith("pretrain, pretrain, done, 2 min 32 s, 2.6")
    for stage in ("pretrain", "eval-rl", "verdict"):
        page.locator(f".flow a[href='#stage-{stage}']").click()
        details = page.locator(f"#stage-{stage}[open]")
        details.wait_for()
        assert 0 <= details.bounding_box()["y"] < 900


def test_table_of_evaluations(page: Any) -> None:
    assert texts(page, ".evals thead th") == ["Metric", "Trend", *TRAINED]
    for metric in scores("sft"):
        row = page.locator(f'.evals tr[data-metric="{metric}"]')
        shown = [re.match(r"[\d.]+", cell)[0] for cell in row.locator("td:not(.trend) .value").all_inner_texts()]  # type: ignore[index]
        assert shown == [f"{scores(stage)[metric]['value']:.3f}" for stage in TRAINED]
        errors = [re.search(r"±([\d.]+)", cell)[1] for cell in row.locator("td:not(.trend) .value").all_inner_texts()]  # type: ignore[index]
        assert errors == [f"{scores(stage)[metric]['standard_error']:.3f}" for stage in TRAINED]
        exact = row.locator(".value").nth(2).get_attribute("title")
        assert exact.startswith(f"{scores('sft')[metric]['value']} ± ")
        best = (min if metric == "bits_per_byte" else max)(scores(stage)[metric]["value"] for stage in TRAINED)
        assert set(row.locator("strong").all_inner_texts()) == {f"{best:.3f}"}
    bits = page.locator('.evals tr[data-metric="bits_per_byte"] .delta')
    assert [re.sub(r"\s+", " ", text) for text in bits.all_inner_texts()][1].startswith("▲ 0.184")  # sft: more bits
    assert "worse" in bits.nth(1).get_attribute("class") and "better" in bits.nth(4).get_attribute("class")
    assert "noise" in bits.nth(0).get_attribute("class")
    accuracy = page.locator('.evals tr[data-metric="accuracy/arithmetic"] .delta')
    assert "better" in accuracy.nth(3).get_attribute("class") and accuracy.nth(3).inner_text().startswith("▲ 0.181")


def test_hostile_text_is_shown_as_text(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    page.locator(".funnel-row", has_text="quality rules").click()
    page.locator("#data .rule", has_text="symbol share").click()
    while page.locator("#data .samples > .button").count():
        page.locator("#data .samples > .button").click()
    shown = page.locator("#data .sample .text").evaluate_all("elements => elements.map(element => element.textContent)")
    assert shown == list(HOSTILE[:6])
    page.locator("#generations").get_by_role("button", name="Open all").click()
    page.locator("#generations details.task").last.locator(".task-body").wait_for()
    assert page.title() == "quickstart <script>alert('name')</script> · Ingot report"
    assert page.locator("script").count() == 2
    assert page.locator("main img, main script, main style, main b:not(.number), [onerror]").count() == 0


def test_keyboard_alone(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    visited = []
    for _ in range(220):  # everything that can be reached is reached in order, and the focus never gets stuck
        page.keyboard.press("Tab")
        visited.append(
            page.evaluate(
                "(document.activeElement.closest('section') || document.activeElement.closest('header') || {}).id ?? ''"
            )
        )
    order = [section for section in dict.fromkeys(visited) if section in SECTIONS]
    assert order == [section for section in SECTIONS if section != "tokenizer"]  # the tokenizer has nothing to operate

    page.locator("#nav a", has_text="Rollouts").press("Enter")
    page.wait_for_url(re.compile("#rollouts$"))
    page.locator(".flow a[href='#stage-sft']").press("Enter")
    page.locator("#stage-sft[open]").wait_for()
    assert page.evaluate("document.activeElement.closest('details').id") == "stage-sft"
    page.keyboard.press("Enter")
    page.locator("#stage-sft:not([open])").wait_for()
    page.locator(".funnel-row").nth(4).press("Enter")
    assert page.locator("#data .browser h3").inner_text() == "Removed by language"
    page.locator("#curves input[value=share]").press("ArrowLeft")
    assert page.locator("#curves input[value=tokens]").is_checked()


@pytest.mark.parametrize("scheme", first_fast(["dark", "light"]))
def test_themes(open_page: Open, report_page: Path, scheme: str) -> None:
    page = open_page(report_page, scheme=scheme)

    def brightness(selector: str, name: str) -> float:
        colour = page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{name}")
        return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3

    assert (brightness("body", "backgroundColor") > 128) == (scheme == "light")
    button = page.locator("#theme")
    for theme in ("light", "dark", "auto"):
        button.click()
        assert button.inner_text().split() == [button.inner_text().split()[0], theme.capitalize()]
        dark = theme == "dark" or (theme == "auto" and scheme == "dark")
        assert (brightness("body", "backgroundColor") < 128) == dark
        assert abs(brightness("body", "backgroundColor") - brightness("body", "color")) > 150  # text can be read
    button.click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "light"  # remembered


@pytest.mark.parametrize("width", first_fast([NARROW, WIDE]))
def test_nothing_sticks_out(open_page: Open, report_page: Path, width: int) -> None:
    page = open_page(report_page, width=width)
    assert overflow(page) == 0
    for section in SECTIONS:
        page.locator(f"#nav a[href='#{section}']").click()
        assert page.locator(f"#{section}").is_visible()
    for index in range(len(funnel())):
        page.locator(".funnel-row").nth(index).click()
        assert overflow(page) == 0
    page.locator("#generations").get_by_role("button", name="Open all").click()
    assert page.locator("#generations details:not([open])").count() == 0
    page.locator("#generations details.task").last.locator(".task-body").wait_for()
    assert overflow(page) == 0
    page.locator("#generations").get_by_role("button", name="Close all").click()
    assert page.locator("#generations details[open]").count() == 0
    for summary in page.locator("#stages summary").all():
        summary.click()
    page.get_by_label("Enlarge loss").click()
    for item in page.locator(".rollout-item").all():
        item.click()
        assert overflow(page) == 0
    assert overflow(page) == 0
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(200)
    assert overflow(page) == 0


def test_print(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page, width=760, scheme="dark")
    page.emulate_media(media="print")
    assert overflow(page) == 0
    assert page.locator(".bar").is_hidden() and page.locator("#curves .controls").is_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#stages details[open]").count() == len(FOLDERS)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#stages details[open]").count() == 0


@pytest.mark.parametrize("width", first_fast([NARROW, WIDE]))
def test_a_run_in_progress_says_what_is_missing(open_page: Open, running_run: Path, tmp_path: Path, width: int) -> None:
    page = open_page(build(running_run, tmp_path / "report.html"), width=width)
    assert texts(page, "#verdict-badge") == ["▶ Running: prefer"]
    notice = page.locator("#problems").inner_text()
    assert "Stage prefer is still running" in notice and "skipped 1 unreadable line" in notice
    assert "Not run yet: eval-prefer, rl, eval-rl, distill, eval-distill, verdict." in notice
    assert "trajectories.jsonl" in page.locator("#rollouts .empty").inner_text()
    assert texts(page, ".evals thead th")[2:] == ["pretrain", "extend", "sft"]
    assert page.locator(".flow .status-pending").count() == 6
    assert overflow(page) == 0


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [
            {
                "name": "</script><b>",
                "kind": "constructor",
                "status": "<i>",
                "inputs": {"checkpoint": "/somewhere/model", "__proto__": ["</script><b>"]},
            }
        ],
        [
            {"name": "a", "inputs": {"x": "b"}},
            {"name": "b", "inputs": {"x": "a"}},
            {"name": "a", "status": "failed", "error": "boom"},
        ],
    ],
)
def test_strange_runs(open_page: Open, tmp_path: Path, stages: list[dict[str, Any]]) -> None:
    """No stages; names that are traps; inputs that go in circles and a name that comes twice."""
    (tmp_path / "run.json").write_text(json.dumps({"name": "strange", "stages": stages}))
    page = open_page(build(tmp_path))
    assert page.locator("h1").inner_text() == "strange"
    assert page.locator(".empty").count() >= 6
    assert page.locator("#stages details").count() == len(stages)
    for details in page.locator("#stages summary").all():
        details.click()
    assert overflow(page) == 0


def test_axes_fit_small_and_flat_numbers_and_a_single_point(open_page: Open, tmp_path: Path) -> None:
    """Labels stay in the picture with their sign; zeros have no negative axis; shares of a stage span all of it."""
    long, steps = "a_metric_whose_name_is_far_longer_than_its_picture", range(5)
    rows = [{"step": step, "tiny": -0.00025 * step, "flat": 0, long: step} for step in steps] + [{"step": 5, "once": 1}]
    (tmp_path / "long-1").mkdir()
    write_rows(tmp_path / "long-1" / "metrics.jsonl", rows)
    stages = [{"name": "long", "folder": "long-1"}]
    (tmp_path / "run.json").write_text(json.dumps({"name": "small numbers", "stages": stages}))
    page = open_page(build(tmp_path))
    page.locator("#curves").get_by_text("share of stage").click()

    def ticks(metric: str) -> list[str]:
        found: list[str] = page.locator(f'[data-metric="{metric}"] text.tick').all_text_contents()
        return found

    assert "−0.00025" in ticks("tiny")
    inside = "labels => labels.every(label => label.getBBox().x >= 0)"
    assert page.locator('[data-metric="tiny"] text.tick').evaluate_all(inside)
    assert not [tick for tick in ticks("flat") if tick.startswith("−")]
    shares = [tick for tick in ticks("once") if tick.endswith("%")]
    assert (shares[0], shares[-1]) == ("0 %", "100 %")
    note = page.locator(f'[data-metric="{long}"] .note')
    assert note.inner_text() == "long" and note.bounding_box()["height"] < 30, "one line, not a letter a line"


def test_metrics_called_like_parts_of_javascript(open_page: Open, tmp_path: Path) -> None:
    """The second stage lacks all of them but one: every plain object of JavaScript seems to have a "constructor"."""
    names = ("constructor", "__proto__", "toString", "<b>")
    for folder, metrics in (("odd-1", names), ("other-2", ("<b>",))):
        (tmp_path / folder).mkdir()
        rows = [{"step": step} | dict.fromkeys(metrics, step * 1.5) for step in range(5)]
        write_rows(tmp_path / folder / "metrics.jsonl", rows)
    stages = [{"name": "odd", "folder": "odd-1"}, {"name": "other", "folder": "other-2"}]
    (tmp_path / "run.json").write_text(json.dumps({"name": "odd", "stages": stages}))
    page = open_page(build(tmp_path))
    assert page.locator(".chart-card").count() == 4
    assert page.locator(".chart path.line").count() == 5


def test_a_number_that_never_changes_is_a_line_of_text(open_page: Open, tmp_path: Path) -> None:
    """A dozen flat lines between the curves of a run hide the others; their values are kept, and the charts to be opened."""
    for folder, value in (("sft-1", 0.0), ("rl-2", 2.0)):
        (tmp_path / folder).mkdir()
        rows = [{"step": step, "loss": value + step, "dropped_groups": 0, "rate": value} for step in range(5)]
        write_rows(tmp_path / folder / "metrics.jsonl", rows)
    stages = [{"name": "sft", "folder": "sft-1"}, {"name": "rl", "folder": "rl-2"}]
    (tmp_path / "run.json").write_text(json.dumps({"name": "flat", "stages": stages}))
    page = open_page(build(tmp_path))
    visible = page.locator(".chart-card:visible")
    assert sorted(card.get_attribute("data-metric") for card in visible.all()) == ["loss", "rate"], (
        "0 and 2 are no one value"
    )
    folded = page.locator("details.still")
    assert folded.locator("summary").inner_text() == "1 number that never changed: Groups dropped for age: 0"
    folded.locator("summary").click()
    page.locator("[data-metric=dropped_groups] svg.chart").wait_for()
    assert page.locator("[data-metric=dropped_groups] path.line").count() == 2
