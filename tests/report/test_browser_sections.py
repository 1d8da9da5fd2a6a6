"""Section by section in a real browser: what is shown are the numbers of the files, and every control does its work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .browsing import CHROMIUM, Open, four_digits, texts
from .example_documents import BANDING, HOSTILE, STATISTICS, funnel, kept_table
from .example_run import FOLDERS, config
from .example_scores import TRAINED
from .run_files import rows_of

pytestmark = [
    pytest.mark.slow,  # half a minute of a browser; test_browser_real.py looks at the same page of a real run
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


def row_of(page: Any, step: str) -> Any:
    """The button of a step in the funnel."""
    return page.locator(".funnel-row").nth([row["step"] for row in funnel()].index(step))


def test_funnel(page: Any) -> None:
    rows = page.locator(".funnel-row:not(.kept-row)")
    assert rows.count() == len(funnel())
    for index, step in enumerate(funnel()):
        label = rows.nth(index).get_attribute("aria-label")
        counted = "files" if index < 2 else "documents"
        assert label.startswith(f"{step['step'].replace('_', ' ')}: {step['documents_in']:,} {counted} in, ")
        assert f"{step['documents_out']:,}" in label
        shown = texts(page, f".funnel-row:nth-of-type({index + 1})")[0]
        tokens, rate = step["bytes_out"] / 4.2 / 1e6, step["bytes_in"] / step["seconds"] / 1e6
        assert f" {float(f'{tokens:.3g}'):g}M " in shown
        if index:  # choosing files has no rate
            assert f"{float(f'{rate:.2g}') if rate < 10 else round(rate):g} MB/s" in shown
        rows.nth(index).click()
        assert rows.nth(index).get_attribute("aria-pressed") == "true"
        assert page.locator("#data .browser h3").inner_text().endswith(f" by {step['step'].replace('_', ' ')}")
    total = texts(page, "#data .totals")[0]
    assert total.startswith("11,004 documents (126 MB, about 30.1M tokens) kept of 18,412 (186 MB): 60 % of documents")
    assert total.endswith("Read from 212 files (201 MB).")

    def kept_share() -> list[float]:
        """Lengths of the bars of documents as parts of their tracks; files have none."""
        measure = "const bar = row.querySelector('.kept'); return bar.offsetWidth / bar.parentElement.offsetWidth;"
        shares: list[float] = rows.evaluate_all(f"rows => rows.slice(2).map(row => {{ {measure} }})")
        return shares

    steps = funnel()[2:]
    assert kept_share() == pytest.approx([step["documents_out"] / 18412 for step in steps], abs=0.01)
    page.get_by_text("each step's input").click()
    assert kept_share() == pytest.approx([step["documents_out"] / step["documents_in"] for step in steps], abs=0.01)

    row_of(page, "quality_rules").click()
    assert texts(page, "#data .rule") == [
        "too short 1,404",
        "repeated lines 911",
        "mean word length 520",
        "symbol share 257",
    ]
    before = page.locator("#data .sample").count()
    page.locator("#data .samples > .button").click()
    assert page.locator("#data .sample").count() == 2 * before
    page.locator("#data .rule", has_text="symbol share").click()
    assert all(head.startswith("symbol_share above 0.3") for head in texts(page, "#data .sample-head"))
    assert f"{FOLDERS['curate']}/removed/part-*.parquet" in page.locator("#data .everything").inner_text()


def test_pairs_of_near_duplicates(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    row_of(page, "near_duplicates").click()
    pair = page.locator("#data .sample").nth(1)
    assert pair.locator("mark.only-left").all_inner_texts() == ["2001 The authors", "software"]
    assert pair.locator("mark.only-right").all_inner_texts()[:2] == ["1999 Somebody else", "program"]
    page.locator("#data input[type=search]").fill("DOC-00070")
    assert page.locator("#data .sample").count() == 1
    assert "1 of the 24 samples" in page.locator("#data [role=status]").inner_text()
    page.locator("#data input[type=search]").fill("straßenbau")  # removed by another step
    assert page.locator("#data .sample").count() == 0
    page.get_by_label("all steps").check()
    assert texts(page, "#data .sample-head")[0].startswith("language: not English 0.31 < 0.65")

    chart = page.locator("#data .s-curve")  # 1 - (1 - s^8)^14 at 0.8: 92.4 %
    assert "0.7: 56.5 %, 0.8: 92.4 %" in chart.get_attribute("aria-label")
    assert chart.locator("rect.bin").count() == sum(count > 0 for count in BANDING["similarities"])
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (44 + 0.8 * 404) / 460, box["y"] + 50)
    tip = page.locator("#tip").inner_text()
    assert re.fullmatch(r"similarity 0\.80: 92\.\d % of pairs meet; 0 documents removed", tip)  # bin 40 holds none


def test_evals_beside_what_holds_them(page: Any) -> None:
    row_of(page, "decontaminate").click()
    table = page.locator("#data .eval-sets tbody tr")
    assert [re.sub(r"\s+", " ", row) for row in table.all_inner_texts()] == [
        "sums 658 650 13 2 % 14",
        "quiz/dev 285 285 0 0 % 0",
    ]
    document, found = (page.locator("#data .sample figure").nth(side) for side in (0, 1))
    assert document.locator("mark.span").all_inner_texts() == ["What is 17 * 24 ?", "408"]  # spans behind emoji
    assert "sums:12" in found.inner_text() and found.locator("mark.span").all_inner_texts() == ["WHAT is 17 * 24 ?"]
    assert "<b>all</b>" in found.inner_text()


def test_rewritten_kept_and_unreadable(page: Any) -> None:
    row_of(page, "pii").click()
    sample = page.locator("#data .sample")
    assert page.locator("#data .browser h3").inner_text() == "Rewritten by pii"
    assert "from character 1,480" in sample.inner_text()
    assert sample.locator("mark.only-left").all_inner_texts() == ["anna", "firm", "de"]
    assert sample.locator("mark.only-right").all_inner_texts() == ["email", "example", "com"]
    row_of(page, "extract").click()
    assert "800 kB cut out of texts that stayed" in page.locator("#data .facts-line").inner_text()

    page.locator(".kept-row").click()
    first = page.locator("#data .sample").first
    assert texts(page, "#data .sample .columns-of")[0] == "kind prose quality 0.025 scores [1, 1]"
    assert "Document 1 <script>1</script> 🧪" in first.inner_text()
    assert f"the first 2,000 of {len(kept_table()['text'][1].as_py()):,} characters" in first.inner_text()

    row_of(page, "read").click()
    assert texts(page, "#data .rule") == ["not a page 40", "not JSON 3"]
    assert "Read after a repair: 7 not UTF-8." in texts(page, "#data .browser p")
    places = texts(page, "#data .problems tbody td:first-child")
    assert places[:2] == ["web:a.jsonl@17", "web:a.jsonl@99"] and len(places) == 6
    assert HOSTILE[0] in page.locator("#data .problems").inner_text()


def test_tokenizer(page: Any) -> None:
    assert texts(page, "#tokenizer .tile dd") == ["4,096", "10,804", "24.1 MB"]
    table = [texts(page, f"#tokenizer tbody tr:nth-child({index}) > *") for index in (1, 2, 3)]
    for (kind, numbers), shown in zip(STATISTICS["held_out"].items(), table, strict=True):
        assert shown[0] == kind.capitalize()
        assert shown[5] == four_digits(numbers["bytes_per_token"]) and shown[6] == four_digits(numbers["fertility"])
        assert shown[3] == f"{numbers['tokens']:,}" and shown[7] == f"{100 * numbers['continued_word_share']:.3g} %"


def test_curves(page: Any, finished_run: Path) -> None:
    metrics = rows_of(finished_run, "rl", "metrics.jsonl")
    page.locator("#curves").get_by_text("step", exact=True).click()
    chart = page.locator("[data-metric=reward] svg.chart")
    chart.focus()  # with the keyboard: both ends exactly
    for key, row in (
        ("End", metrics[-1]),
        ("ArrowLeft", metrics[-2]),
        ("Home", metrics[0]),
        ("ArrowRight", metrics[1]),
    ):
        page.keyboard.press(key)
        tip = re.sub(r"\s+", " ", page.locator("#tip").inner_text())
        assert f"rl {four_digits(row['reward'])} step {row['step']} · " in tip
        assert f"step {row['step']}: {four_digits(row['reward'])}" in page.locator("#announce").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()

    box = chart.bounding_box()  # with the mouse: whatever step it is, the value is that of the file
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    found = re.search(r"rl ([\d.]+) step (\d+)", re.sub(r"\s+", " ", page.locator("#tip").inner_text()))
    assert found and found[1] == four_digits(metrics[int(found[2]) - 1]["reward"])
    assert page.locator(".chart .cursor line").count() > 5, "the crosshair is in all charts"

    pretrain = rows_of(finished_run, "pretrain", "metrics.jsonl")
    loss = page.locator("[data-metric=loss]")
    assert loss.locator("path.line").count() == len(TRAINED)
    page.locator("[data-metric=gradient_norm] text.bad").wait_for()  # the NaN of step 1200
    ticks = loss.locator("text.tick").all_inner_texts()
    page.get_by_text("log y").click()
    assert loss.locator("text.tick").all_inner_texts() != ticks
    page.get_by_text("log x").click()
    page.get_by_text("log x").click()
    page.get_by_text("log y").click()
    page.locator("#curves .slider input").fill("0.9")
    assert loss.locator("path.line.raw").count() == len(TRAINED) and loss.locator("path.line").count() == 2 * len(
        TRAINED
    )
    page.locator("#curves .slider input").fill("0")

    for stage in TRAINED[1:]:
        page.locator("#curves .series-chip", has_text=stage).click()
    assert loss.locator("path.line").count() == 1
    assert page.locator("[data-metric=reward]").get_attribute("class").endswith("off")
    page.locator("#curves").get_by_text("tokens", exact=True).click()
    loss.locator("svg").focus()
    page.keyboard.press("End")
    tip = page.locator("#tip").inner_text()
    last = [row for row in pretrain if "loss" in row][-1]
    assert four_digits(last["loss"]) in tip and "13.1M tokens" in tip  # 1600 * 8192

    page.get_by_label("Enlarge loss").click()
    box = loss.locator("svg").bounding_box()
    assert box["width"] > 1000
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 120, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="Reset zoom")
    zoomed = loss.locator("text.tick").all_inner_texts()
    reset.click()
    assert loss.locator("text.tick").all_inner_texts() != zoomed and reset.is_hidden()
    page.locator("#curves .series-chip", has_text="sft").dblclick()
    assert page.locator("#curves .series-chip input:checked").count() == 1


def test_generations(page: Any, finished_run: Path) -> None:
    section = page.locator("#generations")
    page.locator("#generations select").first.select_option(label="arithmetic")
    task = section.locator("details.task").first
    assert "What is 11 * 7?" in task.inner_text()
    task.locator(".answer").last.wait_for()
    for stage in TRAINED:
        answers = [
            row
            for row in rows_of(finished_run, f"eval-{stage}", "scores/samples.jsonl")
            if row["task_id"] == "arithmetic-000"
        ]
        answer = task.locator(".answer", has=page.locator(f"h4 :text-is('{stage}')"))
        assert answer.locator(".text").evaluate_all("all => all.map(one => one.textContent)") == [
            row["completion"] for row in answers
        ]
        assert answer.locator("h4 small").inner_text().strip() == f"{sum(row['correct'] for row in answers)}/2"
        assert answer.locator(".reply .sign").all_inner_texts() == ["✓" if row["correct"] else "✕" for row in answers]
    think = task.locator(".think").first
    assert think.inner_text().startswith("<think>") and think.inner_text().endswith("</think>")
    assert float(think.evaluate("element => getComputedStyle(element).opacity")) < 1

    page.locator("#generations select").first.select_option(label="all")
    for outcome in ("gained", "lost", "never", "always", "*"):
        page.locator("#generations select").nth(1).select_option(outcome)
        assert re.match(r"\d+ of ", section.locator("[role=status]").inner_text())
    section.locator("input[type=search]").fill("word14 ")
    assert section.locator("details.task").count() == 1
    section.locator("input[type=search]").fill("")
    section.get_by_role("button", name="Show 10 more").click()
    assert section.locator("details.task").count() == 20
    assert section.locator(".tool").count() == 0
    section.locator("details.task", has_text="calculator").first.locator("summary").click()
    section.locator(".tool").first.wait_for()
    assert section.locator(".tool").first.inner_text().startswith("<tool_call>")


def test_stage_details(page: Any) -> None:
    for stage in FOLDERS:
        details = page.locator(f"#stage-{stage}")
        details.locator("summary").click()
        assert details.locator(".yaml").evaluate("element => element.textContent") == config(stage).rstrip()
        assert FOLDERS[stage] in details.inner_text()
    assert "4,718,592" in page.locator("#stage-rl").inner_text()
    page.locator("#stage-distill .inputs a", has_text="sft").click()
    page.wait_for_url(re.compile("#stage-sft$"))
