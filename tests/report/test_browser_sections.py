"""Section by section in a real browser: what is shown are the numbers of the files, and every control does its work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .browsing import CHROMIUM, Open, four_digits, rows_of, texts
from .example_documents import STATISTICS, funnel
from .example_run import FOLDERS, config
from .example_scores import TRAINED

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]


def test_funnel(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    rows = page.locator(".funnel-row")
    assert rows.count() == len(funnel())
    for index, step in enumerate(funnel()):
        label = rows.nth(index).get_attribute("aria-label")
        assert label.startswith(
            f"{step['step'].replace('_', ' ')}: {step['documents_in']:,} documents in, {step['documents_out']:,} out"
        )
        rows.nth(index).click()
        assert rows.nth(index).get_attribute("aria-pressed") == "true"
        assert page.locator("#data .browser h3").inner_text() == f"Removed by {step['step'].replace('_', ' ')}"
    assert texts(page, ".totals")[0].startswith("11,004 documents (126 MB) kept of 18,412 (186 MB)")

    def kept_share() -> list[float]:
        """Lengths of the bars of documents as parts of their tracks."""
        measure = "const bar = row.querySelector('.kept'); return bar.offsetWidth / bar.parentElement.offsetWidth;"
        shares: list[float] = rows.evaluate_all(f"rows => rows.map(row => {{ {measure} }})")
        return shares

    assert kept_share() == pytest.approx(
        [step["documents_out"] / funnel()[0]["documents_in"] for step in funnel()], abs=0.01
    )
    page.get_by_text("each step's input").click()
    assert kept_share() == pytest.approx([step["documents_out"] / step["documents_in"] for step in funnel()], abs=0.01)

    rows.nth(6).click()  # decontaminate: spans behind emoji
    assert page.locator("#data mark.span").all_inner_texts() == ["What is 17 * 24 ?", "408"]

    rows.nth(5).click()  # near duplicates: pairs
    pair = page.locator("#data .sample").nth(1)
    assert pair.locator("mark.only-left").all_inner_texts() == ["2001 The authors", "software"]
    assert pair.locator("mark.only-right").all_inner_texts()[:2] == ["1999 Somebody else", "program"]
    page.locator("#data input[type=search]").fill("DOC-00070")
    assert page.locator("#data .sample").count() == 1
    assert "1 of the 24 samples" in page.locator("#data [role=status]").inner_text()
    page.locator("#data input[type=search]").fill("nothing has this")
    assert page.locator("#data .sample").count() == 0

    rows.nth(3).click()  # quality rules
    assert texts(page, "#data .rule") == [
        "too short 1,404",
        "repeated lines 911",
        "mean word length 520",
        "symbol share 257",
    ]
    before = page.locator("#data .sample").count()
    page.locator("#data .samples > .button").click()
    assert page.locator("#data .sample").count() == 2 * before


def test_tokenizer(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    assert texts(page, "#tokenizer .tile dd") == ["4,096", "10,804", "24.1 MB"]
    table = [texts(page, f"#tokenizer tbody tr:nth-child({index}) > *") for index in (1, 2, 3)]
    for (kind, numbers), shown in zip(STATISTICS["held_out"].items(), table, strict=True):
        assert shown[0] == kind.capitalize()
        assert shown[5] == four_digits(numbers["bytes_per_token"]) and shown[6] == four_digits(numbers["fertility"])
        assert shown[3] == f"{numbers['tokens']:,}" and shown[7] == f"{100 * numbers['continued_word_share']:.3g} %"
    assert "</script>" in texts(page, "#tokenizer .chip")


def test_curves(open_page: Open, report_page: Path, finished_run: Path) -> None:
    page = open_page(report_page)
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


def test_generations(open_page: Open, report_page: Path, finished_run: Path) -> None:
    page = open_page(report_page)
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
    section.locator("details.task", has_text="tool call").first.locator("summary").click()
    section.locator(".tool").first.wait_for()
    assert section.locator(".tool").first.inner_text().startswith("<tool_call>")


def test_rollouts(open_page: Open, report_page: Path, finished_run: Path) -> None:
    page = open_page(report_page)
    section = page.locator("#rollouts")
    rows = [row for row in rows_of(finished_run, "rl", "trajectories.jsonl") if row["step"] == 44]
    assert section.locator(".step-label").inner_text() == "step 44"
    items = section.locator(".rollout-item")
    assert [item.split()[0] for item in items.all_inner_texts()] == [f"{row['reward']:g}" for row in rows[:8]]
    for index in range(8):
        items.nth(index).click()
        nodes = rows[index]["nodes"]
        tokens = section.locator(".nodes .token")
        assert tokens.count() == sum(len(node["pieces"]) for node in nodes)
        given = sum(len(node["pieces"]) for node in nodes if not node["sampled"])
        assert section.locator(".nodes .token.given").count() == given
        advantage = nodes[1]["advantages"][0]
        colour = section.locator(".nodes .token:not(.given)").first.evaluate("element => element.style.backgroundColor")
        assert ("--better" if advantage >= 0 else "--worse") in colour
    node = rows[7]["nodes"][1]
    section.locator(".nodes .token:not(.given)").nth(3).hover()
    tip = re.sub(r"\s+", " ", page.locator("#tip").inner_text())
    assert (
        f"log-probability {four_digits(node['logprobs'][3])} " in tip
        and f"advantage {four_digits(node['advantages'][3])} " in tip
    )
    assert "mask sampled" in tip
    section.locator(".nodes .token.given").first.hover()
    assert "mask not sampled" in re.sub(r"\s+", " ", page.locator("#tip").inner_text())

    section.get_by_text("log-probability", exact=True).click()
    assert "--surprise" in section.locator(".nodes .token:not(.given)").first.evaluate(
        "element => element.style.backgroundColor"
    )
    section.get_by_label("Previous step").click()
    assert section.locator(".step-label").inner_text() == "step 40"
    section.get_by_label("Step", exact=True).press("Home")
    assert section.locator(".step-label").inner_text() == "step 0"
    section.get_by_label("Next step").click()
    assert section.locator(".step-label").inner_text() == "step 4"
    section.locator("select").select_option(label="distill")
    assert section.locator(".step-label").inner_text() == "step 44"
    section.locator(".nodes").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert section.locator(".token.current").inner_text() == "user"
    page.keyboard.press("End")
    assert section.locator(".token.current").inner_text() == "<|im_end|>"


def test_stage_details(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page)
    for stage in FOLDERS:
        details = page.locator(f"#stage-{stage}")
        details.locator("summary").click()
        assert details.locator(".yaml").evaluate("element => element.textContent") == config(stage).rstrip()
        assert FOLDERS[stage] in details.inner_text()
    assert "4,718,592" in page.locator("#stage-rl").inner_text()
    page.locator("#stage-distill .inputs a", has_text="sft").click()
    page.wait_for_url(re.compile("#stage-sft$"))
