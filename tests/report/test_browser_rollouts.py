"""Rollouts in a real browser: groups side by side, what colours mean, filters, keys, and text that stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import build
from tests.slow import first_fast

from .browsing import CHROMIUM, NARROW, WIDE, Open, four_digits, overflow, texts
from .run_files import folder_of, rows_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]

Rows = list[dict[str, Any]]
LAST = 44  # the last step of the example, with three groups
OPACITY = "all => all.map(one => getComputedStyle(one).backgroundColor)"


@pytest.fixture
def rows(finished_run: Path) -> Rows:
    return rows_of(finished_run, "rl", "trajectories.jsonl")


@pytest.fixture
def opened(open_page: Open, report_page: Path) -> Any:
    return open_page(report_page)


def group_of(rows: Rows, step: int, group: int) -> Rows:
    return [row for row in rows if (row["step"], row["group"]) == (step, group)]


def sampled(row: dict[str, Any], name: str) -> list[Any]:
    return [value for node in row["nodes"] if node["sampled"] for value in node[name]]


def tip_of(page: Any) -> str:
    return re.sub(r"\s+", " ", page.locator("#tip").inner_text())


def shares(tokens: Any) -> list[float]:
    """How strongly each token is coloured: the alpha that the browser computed."""
    colours: list[str] = tokens.evaluate_all(OPACITY)
    return [float(found[1]) if (found := re.search(r"/ ([\d.]+)\)", colour)) else 0.0 for colour in colours]


def choose(page: Any, colour: str) -> None:
    page.locator("#rollouts .choice").get_by_text(colour, exact=True).click()


def test_answers_of_a_group_stand_side_by_side(opened: Any, rows: Rows) -> None:
    section = opened.locator("#rollouts")
    assert section.locator(".step-label").inner_text() == f"step {LAST}"
    for number, item in enumerate(section.locator(".rollout-item").all()):
        item.click()
        group = group_of(rows, LAST, number)
        assert texts(opened, "#rollouts .attempt .reward") == [f"{row['reward']:g}" for row in group]
        right = sum(row["correct"] for row in group)
        assert f"{number + 1} · {group[0]['kind']} {right} of 4 right" == " ".join(item.inner_text().split())
        boxes = [each.bounding_box() for each in section.locator(".attempt").all()]
        assert len({round(box["y"]) for box in boxes}) == 1, "in one row"
        assert all(one["x"] + one["width"] <= other["x"] + 1 for one, other in pairwise(boxes))
        prompt = section.locator(".given-prompt .token").evaluate_all("all => all.map(one => one.textContent)")
        assert [piece.replace("↵", "") for piece in prompt] == group[0]["nodes"][0]["pieces"]
        for attempt, row in zip(section.locator(".attempt").all(), group, strict=True):
            assert attempt.locator(".token").count() == sum(len(node["pieces"]) for node in row["nodes"][1:])
            assert attempt.locator(".token:not(.given)").count() == len(sampled(row, "pieces"))
    note = section.locator("[role=status]").inner_text()
    assert note == (
        "3 of 3 groups and 12 of 12 rollouts recorded at this step; 12 of 12 recorded steps; 144 rollouts in the file."
    )


def test_more_answers_than_fit_are_scrolled_to(open_page: Open, report_page: Path) -> None:
    page = open_page(report_page, width=NARROW)
    attempts = page.locator("#rollouts .attempts")
    wide, seen = attempts.evaluate("element => [element.scrollWidth, element.clientWidth]")
    assert wide > 2 * seen and overflow(page) == 0
    page.locator("#rollouts .nodes").focus()
    page.keyboard.press("End")
    assert attempts.evaluate("element => element.scrollLeft") > seen
    last = page.locator("#rollouts .token.current").bounding_box()
    assert 0 <= last["x"] <= NARROW and page.locator("#tip").is_visible()


@pytest.mark.parametrize("scheme", first_fast(["light", "dark"]))
def test_colours_are_the_numbers(open_page: Open, report_page: Path, rows: Rows, scheme: str) -> None:
    """The strength of every colour is the share of the number in the largest of the step, its hue the sign."""
    page = open_page(report_page, scheme=scheme)
    section = page.locator("#rollouts")
    section.locator(".rollout-item").nth(1).click()
    step, row = [each for each in rows if each["step"] == LAST], group_of(rows, LAST, 1)[0]
    tokens = section.locator(".attempt").first.locator(".token:not(.given)")

    def ratios(each: dict[str, Any]) -> list[float]:
        return [old - new for old, new in zip(sampled(each, "old_logprobs"), sampled(each, "logprobs"), strict=True)]

    expected: dict[str, Callable[[dict[str, Any]], list[float]]] = {
        "advantage": lambda each: sampled(each, "advantages"),
        "log-ratio": ratios,
        "log-probability": lambda each: sampled(each, "logprobs"),
        "entropy": lambda each: sampled(each, "entropies"),
        "age": lambda each: [LAST - version for version in sampled(each, "versions")],
    }
    assert texts(page, "#rollouts .choice label") == list(expected)
    hues = set()
    for name, values in expected.items():
        choose(page, name)
        largest = 4.0 if name == "log-probability" else max(abs(value) for each in step for value in values(each))
        assert shares(tokens) == pytest.approx([min(1, abs(v) / largest) * 0.6 for v in values(row)], abs=0.006)
        legend = section.locator(".key").inner_text().replace("\n", " ")
        assert f"{float(f'{largest:.3g}'):g}" in legend and "not sampled" in legend
        sizes = [abs(value) for value in values(row)]
        hues.add(tokens.evaluate_all(OPACITY)[sizes.index(max(sizes))].split("/")[0])
    assert len(hues) == 5, "each quantity has a colour of its own"
    assert section.locator(".token.given").first.evaluate("one => one.style.backgroundColor") == ""


def test_the_tooltip_has_all_numbers(opened: Any, rows: Rows) -> None:
    section, row = opened.locator("#rollouts"), group_of(rows, LAST, 1)[2]
    section.locator(".rollout-item").nth(1).click()
    node = row["nodes"][1]
    section.locator(".attempts").evaluate("one => one.scrollIntoView({block: 'center'})")
    opened.evaluate(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )  # scrolling hides the tip
    section.locator(".attempt").nth(2).locator(".token:not(.given)").nth(3).hover()
    tip = tip_of(opened)
    assert tip.startswith("␣the ")
    assert f"log-probability {four_digits(node['logprobs'][3])} (p " in tip
    assert f"advantage {four_digits(node['advantages'][3])} " in tip
    ratio = node["old_logprobs"][3] - node["logprobs"][3]
    shown = re.search(r"log-ratio π/μ (\S+) \(π/μ ([\d.]+)\)", tip)
    assert shown and float(shown[1].replace("−", "-")) == pytest.approx(ratio, abs=1e-4)
    entropy = float(f"{node['entropies'][3]:.3g}")
    assert f"entropy {entropy:g} nats" in tip
    assert f"drawn by version {node['versions'][3]} ({LAST - node['versions'][3]} update" in tip
    assert tip.endswith("mask sampled")
    section.locator(".attempt .token.given").first.hover()
    assert tip_of(opened).endswith("mask not sampled") and "advantage" not in tip_of(opened)


def test_thinking_calls_and_results_are_told_apart(opened: Any) -> None:
    attempt = opened.locator("#rollouts .attempt").first
    assert texts(opened, "#rollouts .attempt:first-child .part > small") == [
        "thinking",
        "tool call",
        "tool result",
        "thinking",
    ]
    parts = {
        kind: attempt.locator(f".part.{kind} .token").evaluate_all("all => all.map(one => one.textContent).join('')")
        for kind in ("call", "result")
    }
    assert re.fullmatch(r'<tool_call>\{"name": "calculator".*\}\}</tool_call>', parts["call"])
    assert re.fullmatch(r"<tool_response>\d+</tool_response>", parts["result"])
    borders = {
        kind: attempt.locator(f".part.{kind}").first.evaluate("one => getComputedStyle(one).borderLeft")
        for kind in ("think", "call", "result")
    }
    assert len(set(borders.values())) == 3


def matching(rows: Rows, kind: str | None = None, earned: str | None = None, ended: str | None = None) -> Rows:
    def of(row: dict[str, Any]) -> str:
        return "right" if row["correct"] else "between" if row["reward"] > 0 else "wrong"

    return [
        row
        for row in rows
        if kind in (None, row["kind"]) and earned in (None, of(row)) and ended in (None, shown_end(row))
    ]


def shown_end(row: dict[str, Any]) -> str:
    cut = row["ended"] == "malformed" and row["nodes"][-1]["ended"] == "length"
    return "cut" if cut else str(row["ended"])


def test_answers_that_a_limit_cut_are_filtered_apart(opened: Any, rows: Rows) -> None:
    """From turns that are malformed although they ended by themselves; a turn says that it was cut, and what it earned."""
    section = opened.locator("#rollouts")
    torn = [row for row in rows if row["ended"] == "malformed"]
    for value, turn in (("cut", "length"), ("malformed", "stop")):
        section.get_by_label("Ended").select_option(value)
        wanted = {(row["step"], row["group"]) for row in torn if row["nodes"][-1]["ended"] == turn}
        assert wanted and section.locator("[role=status]").inner_text().endswith(f"{len(wanted)} of 36 groups match.")
        words = {"cut": "cut at the limit of a turn", "malformed": "malformed turn"}[value]
        assert all(words in text for text in texts(opened, "#rollouts .attempt-head"))
        notes = texts(opened, "#rollouts .attempt .node:last-child .role small")
        assert set(notes) == {"sampled · cut at its limit" if value == "cut" else "sampled"}
    section.get_by_label("Ended").select_option("answer")
    section.locator(".rollout-item").first.click()
    assert "sampled · call 0.25" in texts(opened, "#rollouts .attempt:first-child .role small")


def walk(page: Any) -> list[tuple[int, int, list[str]]]:
    """Step, answers and their rewards of every group that `n` leads to, from the first one on."""
    section = page.locator("#rollouts")
    section.get_by_label("Step", exact=True).press("Home")
    section.locator(".rollout-item").first.click()
    seen: list[tuple[int, int, list[str]]] = []
    while True:
        rewards = texts(page, "#rollouts .attempt .reward")
        pressed = section.locator(".rollout-item[aria-pressed=true]").inner_text()
        here = int(section.locator(".step-label").inner_text().split()[1]), int(pressed.split()[0]), rewards
        if seen and seen[-1][:2] == here[:2]:
            return seen
        seen.append(here)
        page.keyboard.press("n")


@pytest.mark.parametrize(
    "asked",
    first_fast(
        [{"kind": "strings", "earned": "right"}, {"ended": "tokens"}, {"earned": "between"}, {"earned": "wrong"}],
        keep=2,
    ),
    ids=str,
)
def test_filters_and_the_key_of_the_next_group(opened: Any, rows: Rows, asked: dict[str, str]) -> None:
    for name, value in asked.items():
        label = {"kind": "Kind", "earned": "Reward", "ended": "Ended"}[name]
        opened.locator("#rollouts").get_by_label(label).select_option(value)
    wanted: dict[tuple[int, int], list[str]] = {}
    for row in matching(rows, **asked):
        wanted.setdefault((row["step"], row["group"] + 1), []).append(f"{row['reward']:g}")
    assert 0 < len(wanted) < 36
    assert walk(opened) == [(*place, rewards) for place, rewards in wanted.items()]
    status = opened.locator("#rollouts [role=status]").inner_text()
    assert status.endswith(f"{len(wanted)} of 36 groups match.")


def test_what_matches_nothing_says_so(opened: Any) -> None:
    section = opened.locator("#rollouts")
    section.get_by_label("Ended").select_option("tokens")
    section.get_by_label("Kind").select_option("strings")
    assert section.locator(".nodes").inner_text() == "No answer matches."
    assert section.locator("[role=status]").inner_text() == "0 of 36 groups match."
    section.locator(".nodes").focus()
    opened.keyboard.press("n")
    opened.keyboard.press("ArrowRight")
    assert opened.locator("#tip").is_hidden()
    section.get_by_label("Kind").select_option("*")
    assert section.locator(".attempt").count() > 0


def test_steps_groups_and_tokens_by_keyboard(opened: Any) -> None:
    section = opened.locator("#rollouts")
    label, pressed = section.locator(".step-label"), section.locator(".rollout-item[aria-pressed=true]")
    section.get_by_label("Previous step").click()
    assert label.inner_text() == "step 40"
    section.get_by_label("Step", exact=True).press("Home")
    assert label.inner_text() == "step 0"
    section.get_by_label("Next step").click()
    assert label.inner_text() == "step 4"
    section.locator(".rollout-item").first.click()
    assert (label.inner_text(), pressed.inner_text()[0]) == ("step 4", "1")
    opened.keyboard.press("p")
    assert (label.inner_text(), pressed.inner_text()[0]) == ("step 0", "3")
    opened.keyboard.press("n")
    assert (label.inner_text(), pressed.inner_text()[0]) == ("step 4", "1")
    section.get_by_role("button", name="Next group").click()
    assert pressed.inner_text()[0] == "2"
    section.get_by_role("button", name="Previous group").click()
    section.get_by_label("Stage").select_option(label="distill")
    assert label.inner_text() == f"step {LAST}"
    section.locator(".nodes").focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    assert section.locator(".token.current").inner_text() == "user"
    opened.keyboard.press("End")
    assert section.locator(".token.current").inner_text() == "<|im_end|>"
    assert "log-probability" in opened.locator("#announce").inner_text()


def test_hostile_text_stays_text(opened: Any, rows: Rows) -> None:
    section = opened.locator("#rollouts")
    section.locator(".rollout-item").first.click()
    for attempt, row in zip(section.locator(".attempt").all(), group_of(rows, LAST, 0), strict=True):
        pieces = attempt.locator(".token").evaluate_all("all => all.map(one => one.textContent)")
        shown = [piece.replace("↵", "").replace("∅", "") for piece in pieces]
        assert shown == [piece for node in row["nodes"][1:] for piece in node["pieces"]]
        assert {"</script>", "</textarea>"} < set(shown)
    assert section.locator("script, textarea").count() == 0 and opened.title() != "owned"


def test_a_file_without_the_new_numbers(open_page: Open, finished_run: Path, tmp_path: Path) -> None:
    """What was recorded before groups and versions were: the page has fewer colours, and a group is a task."""
    run = tmp_path / "run"
    path = folder_of(finished_run, "rl")
    (run / path.name).mkdir(parents=True)
    lines = []
    for row in rows_of(finished_run, "rl", "trajectories.jsonl"):
        nodes = [
            {name: node[name] for name in ("role", "pieces", "sampled", "advantages", "logprobs")}
            for node in row["nodes"]
        ]
        kept = {name: value for name, value in row.items() if name not in ("group", "group_size", "nodes")}
        lines.append(json.dumps({**kept, "nodes": nodes}))
    (run / path.name / "trajectories.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (run / path.name / "recipe.yaml").write_text("rl: {}\n", encoding="utf-8")
    page = open_page(build(run, tmp_path / "report.html"), width=WIDE)
    assert texts(page, "#rollouts .choice label") == ["advantage", "log-probability"]
    assert page.locator("#rollouts .rollout-item").count() == 3 and page.locator("#rollouts .attempt").count() == 4
