"""The table of layouts, and the doctor's lines and record of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingot.planner.check_layouts import as_line, as_record, examine_layouts
from ingot.train.layouts.groups import CaseMachine, choose_machine
from ingot.train.layouts.run import CaseVerdict
from ingot.train.layouts.table import layout_table
from ingot.workspace.errors import IngotError


def test_a_cell_says_where_a_pair_has_passed() -> None:
    def record(case: str, verdict: str) -> dict[str, Any]:
        return {"case": case, "verdict": verdict}

    table = layout_table(
        {
            "cpu": [record("data", "equal"), record("tensor × float8", "equal"), record("data × tensor", "equal")],
            "card": [record("tensor × float8", "different"), record("pipeline × noise scale", "refused")],
            "gpus": [record("data", "equal")],
        }
    )
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in table.split("\n")}
    assert rows[""] == ["data", "tensor", "context", "pipeline", "expert", "copies", "ring", "interleaved"]
    assert rows["alone"] == ["c n", *["–"] * 7]
    assert rows["× tensor"] == ["c", *[""] * 7]
    assert rows["× expert"] == ["–"] * 4 + [""] * 4
    assert rows["× float8"][:2] == ["–", "c wrong 1"]
    assert rows["× noise scale"][3] == "refused"


def test_lines_and_record() -> None:
    equal = CaseVerdict("tensor", ("tensor",), None, 2, "equal", "", 1e-7, 2e-6, 3e-7)
    refused = CaseVerdict("pipeline × noise scale", ("pipeline",), "noise scale", 2, "refused", "measure_noise: no")
    assert as_line(equal).split() == ["tensor", "equal", "1.0e-07", "2.0e-06", "3.0e-07"]
    assert as_line(refused).endswith("refused    measure_noise: no")
    record = json.loads(json.dumps(as_record(CaseMachine("cpu", 2), [equal, refused])))
    assert record["how"] == "cpu" and record["cases"][0]["gradients"] == 2e-6
    assert record["cases"][1]["verdict"] == "refused" and "gradients" not in record["cases"][1]


def test_a_pattern_that_names_nothing_is_refused() -> None:
    with pytest.raises(IngotError, match="no layout of at most 2 processes is called tenser"):
        examine_layouts("tenser", "cpu", 2, lambda verdict: None)


def test_the_machine_is_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert choose_machine("cpu", 4).how == "cpu"
    assert choose_machine("cuda", 4) == CaseMachine("gpus", 4)
    assert choose_machine("cuda", 8).how == "card"
