"""Files of the user's that travel to samplers on other machines, and what must be there: tasks are the same on both sides."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.envs.tools.find import find_tools
from ingot.post.samplers.shipment import Shipment
from ingot.post.samplers.task_stream import TaskStream
from ingot.workspace.errors import CheckFailed

OWN = """
from ingot.envs.environment import Environment

class Zebra(Environment):
    "Questions of a file outside the package."

    most: int = 9

    def draw(self, rng):
        return self.ask(f"{rng.randrange(self.most)}?", "1", thinking=False)
"""


def test_code_travels_and_the_stream_of_tasks_is_the_same(tmp_path: Path) -> None:
    """Two files whose names would sort the other way by their last parts, options of one of them, and tools."""
    files = [tmp_path / "b" / "a.py", tmp_path / "a" / "b.py"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(OWN.replace("Zebra", f"Kind{number}"), encoding="utf-8")
    tool = tmp_path / "tools.py"
    tool.write_text('def look(word: str) -> str:\n    "Looks."\n    return word\n', encoding="utf-8")
    names = [f"{file}:Kind{number}" for number, file in enumerate(files)]
    given: dict[str, Any] = {"weights": dict.fromkeys([*names, "arithmetic"], 1.0), names[0]: {"most": 99}}
    tasks = TaskMixConfig.model_validate(given)
    other = TaskMixConfig.model_validate({"weights": {"strings": 1.0, "arithmetic": 2.0}})
    here = TaskStream(tasks, 5, 12)
    shipment = Shipment.pack([tasks, other], (str(tool), f"{tool}:look", "calculator"))
    expected = [(here[number].id, here[number].question) for number in range(24)]
    wanted = TaskMix(other).generate(1, 5, "test")
    for file in (*files, tool):
        file.unlink()
    (moved, beside), tools = shipment.unpack(tmp_path / "there")
    assert [task.id for task in TaskMix(beside).generate(1, 5, "test")] == [task.id for task in wanted]
    stream = TaskStream(moved, 5, 12)
    assert [(stream[number].id, stream[number].question) for number in range(24)] == expected
    below = f"{tmp_path}/there{tool}"
    assert tools == (below, f"{below}:look", "calculator")
    assert list(find_tools(tools[1:])) == ["look", "calculator"]


def test_what_does_not_travel_must_be_there(tmp_path: Path) -> None:
    """A file of tasks: as it is, changed, gone."""
    rows = tmp_path / "rows.jsonl"
    row = json.dumps({"question": "What is 1 + 1?", "answer": "It is 2. #### 2"})
    rows.write_text(row, encoding="utf-8")
    given = {"weights": {"gsm8k": 1.0}, "gsm8k": {"train": [str(rows)]}}
    shipment = Shipment.pack([TaskMixConfig.model_validate(given)], ())
    (tasks,), _ = shipment.unpack(tmp_path / "there")
    assert TaskStream(tasks, 1, 1)[0].question.startswith("What is 1 + 1?")
    for change in (lambda: rows.write_text("{}", encoding="utf-8"), rows.unlink):
        change()
        with pytest.raises(CheckFailed, match=r"rows\.jsonl: .* has no such file that the tasks read, or another one"):
            shipment.unpack(tmp_path / "there")
    with pytest.raises(CheckFailed, match="has another version of ingot than the learner"):
        replace(shipment, package="other").unpack(tmp_path / "there")


def test_what_the_code_imports_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ingot_test_helper.py").write_text("", encoding="utf-8")
    file = tmp_path / "own.py"
    file.write_text(f"import ingot_test_helper\n{OWN}", encoding="utf-8")
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path / "lib")
        shipment = Shipment.pack([TaskMixConfig.model_validate({"weights": {f"{file}:Zebra": 1.0}})], ())
    monkeypatch.delitem(sys.modules, "ingot_test_helper")
    with pytest.raises(CheckFailed, match=r"cannot load the tasks: .*No module named 'ingot_test_helper'"):
        shipment.unpack(tmp_path / "there")
