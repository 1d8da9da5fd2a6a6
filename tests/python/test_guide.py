"""The guide's program as it stands, block after block, as the cells of a notebook; with fewer steps."""

from __future__ import annotations

import json
import linecache
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.python.result import Result

GUIDE = Path(__file__).parents[2] / "docs/guides/python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def files(model: Path, folder: Path) -> None:
    """What the guide's user has: a model, a benchmark's questions, and a suite of his own."""
    shutil.copytree(model, "smollm2")
    (folder / "FOLDER/gsm8k").mkdir(parents=True)
    for name, numbers in (("train", range(2, 12)), ("test", range(12, 14))):
        rows = [
            {"question": f"{n} pens and one?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"}
            for n in numbers
        ]
        Path(f"FOLDER/gsm8k/{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    Path("my_suite.yaml").write_text(
        "rows: questions.jsonl\nquestion: '{{q}}'\noptions: '{{o}}'\nanswer: '{{a}}'\n", encoding="utf-8"
    )
    Path("questions.jsonl").write_text('{"q": "1 + 1?", "o": ["2", "3"], "a": "2"}\n' * 2, encoding="utf-8")


def run_cells(blocks: list[str], namespace: dict[str, Any]) -> dict[str, Any]:
    for number, block in enumerate(blocks):
        source, name = re.sub(r"steps=\d+", "steps=2", block), f"<guide {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return namespace


@pytest.mark.usefixtures("files")
def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    cells = run_cells(BLOCKS, {"__name__": "__main__"})
    results = [each for each in cells.values() if isinstance(each, Result)]
    assert len(BLOCKS) == 4 and all(each.finished for each in results)
    printed = capsys.readouterr().out
    assert "gsm8k/verified: 0 ±" in printed and "runs/rl/report.html" in printed and "stages:\n  rl:\n" in printed
    assert (Path("out") / "model.safetensors").is_file()
    folders = sorted(path.parent.name.partition("-")[0] for path in Path("runs").glob("*/*/DONE"))
    assert folders == ["eval", "fit", "prefer", "prefer", "reward", "rl", "rl", "sft", "sft"]
    run_cells(BLOCKS, {"__name__": "__main__"})  # from the top again: nothing is done twice
    assert sorted(path.parent.name.partition("-")[0] for path in Path("runs").glob("*/*/DONE")) == folders


@pytest.mark.usefixtures("files")
def test_both_ways_to_name_the_model_are_the_same_work() -> None:
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    planned = [ingot.sft(each, rows, steps=2, dry_run=True) for each in ("smollm2", Path("smollm2").resolve())]
    assert planned[0].folder == planned[1].folder
