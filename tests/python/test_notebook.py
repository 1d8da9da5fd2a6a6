"""What a notebook shows: of a result a table and a curve, of a run one line that changes."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ingot
from ingot.envs.episode import Episode
from ingot.python.result import Result
from ingot.workspace.progress import NotebookProgress, PlainProgress, format_number, make_progress
from tests.python.conftest import TALK, TINY


def page(result: Result) -> ElementTree.Element:
    """The HTML, which must be well formed."""
    return ElementTree.fromstring(result._repr_html_())


def rows(page: ElementTree.Element) -> dict[str, list[str]]:
    return {
        cells[0].text or "": [cell.text or "" for cell in cells[1:]]
        for line in page.iter("tr")
        if (cells := list(line))
    }


def length(episode: Episode) -> float:
    return float(len(episode.answer))


def test_a_training_shows_its_last_step_and_its_curve(model: Path) -> None:
    result = ingot.sft(model, TALK, **TINY)
    shown, last = page(result), result.metrics[-1]
    found = rows(shown)
    assert found["loss"] == [format_number(last["loss"])] and found["learning_rate"] == [
        format_number(last["learning_rate"])
    ]
    (line,) = shown.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    losses = result.metrics.columns["loss"]
    assert len(points) == len(losses) and [x for x, _ in points] == sorted(x for x, _ in points)
    lowest, highest = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    assert losses[points.index(lowest)] == max(losses) and losses[points.index(highest)] == min(losses)  # y goes down
    assert str(result.folder) in result._repr_html_()


def test_rl_shows_its_reward(model: Path) -> None:
    options = {**TINY, "prompts_per_step": 2, "group": 2, "max_new_tokens": 4}
    shown = page(ingot.rl(model, ["1 + 1?", "<2> & 3?"], rewards=[length], **options))
    captions = [caption.text or "" for caption in shown.iter("figcaption")]
    assert [caption.split(":")[0] for caption in captions] == ["reward"]
    assert list(rows(shown))[:3] == [f"after {TINY['steps']} steps", "reward", "loss"]


def test_an_eval_shows_scores_with_errors(model: Path) -> None:
    suites = [{"suite": "tasks", "kinds": [{"kind": "no_think", "count": 3}], "max_new_tokens": 3}]
    result = ingot.evaluate(model, suites, device="cpu")
    shown = rows(page(result))
    for name, metric in result.scores.items():
        estimate = metric.estimate
        assert shown[name] == [format_number(estimate.value), f"± {format_number(estimate.standard_error)}"]


class Display:
    """IPython's display, which counts what it is sent."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.displays = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        self.displays += raw and display_id
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.shown.append(data["text/plain"])


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Display:
    found = Display()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=found.display))
    return found


def test_a_notebook_has_one_display_however_many_steps(kernel: Display) -> None:
    progress = make_progress()
    assert isinstance(progress, NotebookProgress)
    progress.interval = 1e9
    progress.stage("sft", 1, 1)
    progress.say("a line that stays")
    progress.start(10_000)
    for step in range(1, 10_001):
        progress.advance(step, loss=1 / step)
    assert kernel.displays == 1 and len(kernel.shown) == 2
    assert kernel.shown[-1].startswith("[sft] a line that stays\n[sft] step 10,000/10,000 · loss 0.0001")


def test_a_line_of_progress_is_written_over(kernel: Display) -> None:
    progress = NotebookProgress(interval=0.0)
    progress.stage("sft", 1, 1)
    progress.start(3)
    for step in (1, 2):
        progress.advance(step)
    progress.say("saved")
    assert kernel.shown[-2].count("step") == 1 and kernel.shown[-1] == "[sft] saved"


def test_a_call_in_a_notebook_prints_nothing(kernel: Display, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = ingot.sft(model, TALK, **TINY)
    assert capsys.readouterr().out == "" and kernel.displays == 1
    assert f"loss {format_number(result.summary['loss'])}" in kernel.shown[-1]


def test_elsewhere_it_prints_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace())  # a terminal's IPython has no kernel
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert isinstance(make_progress(), PlainProgress) and not isinstance(make_progress(), NotebookProgress)
