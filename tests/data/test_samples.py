"""What a person is shown of a curation: samples of every rule, texts before and after, what was cut, who was alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.data.funnel import Funnel, FunnelRow
from ingot.workspace.files import read_json, read_jsonl
from tests.making.rows import write_rows
from tests.making.stages import Listener, stage_folder

from .dirty import article

LEAK = "How many apples does the green grocer sell to Anna before noon on Monday?"
MAIL = "anna.muster@firm-one.org"
MASK = "email@example.com"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sources, each a shard: articles, some of them special, and texts that all go early.

    Article 0 is there twice with five words changed; 1 and 2 hold an eval; 3 an address; 4 to 39 are plain.
    """
    base = tmp_path_factory.mktemp("seen")
    rows = [{"id": f"a{number}", "text": article(number, 300)} for number in range(40)]
    rows.append({"id": "twin", "text": rows[0]["text"].replace(rows[0]["text"][-40:], "and five other words here.")})
    for number in (1, 2):
        rows[number]["text"] += f" {LEAK}"
    rows[3]["text"] += f" Write to {MAIL} or 🧪."
    rows += [{"id": f"long{number}", "text": article(100 + number, 900)} for number in range(60)]
    rows += [{"id": "brief", "text": "Three short words."}]
    write = {"web": rows, "gone": [{"id": f"g{number}", "text": f"Text {number}."} for number in range(5)]}
    for name, texts in write.items():
        write_rows(base / f"{name}.jsonl", texts)
    steps: list[Any] = [
        {"step": "length", "min_characters": 150, "max_words": 1500},
        {"step": "pii"},
        {"step": "near_dedup"},
        {"step": "decontaminate", "texts": [LEAK]},
    ]
    sources: list[Any] = [{"files": str(base / f"{name}.jsonl"), "name": name} for name in write]
    stage = stage_folder(base / "stage", Listener())
    run_stage(CurateConfig(sources=sources, steps=steps, samples=8, workers=1), {}, stage)
    return base / "stage/documents"


def test_a_rare_rule_has_a_sample_beside_a_common_one(folder: Path) -> None:
    """60 texts are too long and 6 too short, of which `g0` to `g4` were a source of their own."""
    samples = [row for row in read_jsonl(folder / "removed.jsonl") if row["step"] == "length"]
    counts = read_json(folder / "funnel.json")[2]["reasons"]
    assert sorted(counts.values()) == [6, 60]
    rare, common = sorted(counts, key=lambda rule: counts[rule])
    assert sorted(row["rule"] for row in samples) == sorted([rare] * 4 + [common] * 4)
    assert all(row["reason"].startswith(f"length: {row['rule']} ") for row in samples)


def test_texts_before_and_after_and_what_was_cut(folder: Path) -> None:
    [row] = read_jsonl(folder / "rewritten.jsonl")
    assert (row["id"], row["step"], row["source"]) == ("a3", "pii", "web")
    assert row["before"].replace(MAIL, MASK) == row["after"] and MAIL in row["before"]
    text = f"{article(3, 300)} Write to {MAIL} or 🧪."
    common = text.index(MAIL)  # the mask begins with another letter
    assert row["skipped"] == common - 200 and row["before"] == text[common - 200 :]
    cut = {row["step"]: row.get("bytes_cut") for row in read_json(folder / "funnel.json")}
    assert cut == {"select": None, "read": None, "length": None, "near_dedup": None, "decontaminate": None} | {
        "pii": len(MAIL) - len(MASK)
    }


def test_similarities_are_counted_for_what_went(folder: Path) -> None:
    report = read_json(folder / "near_dedup.json")
    [gone] = [row for row in read_jsonl(folder / "removed.jsonl") if row["step"] == "near_dedup"]
    similarity = float(gone["reason"].split(" ")[-3])
    assert gone["skipped"] > 1000 and gone["text"] != gone["duplicate_text"]  # they differ at the end, which is shown
    assert gone["text"][:500] == gone["duplicate_text"][:500]
    assert (report["bands"], report["rows"], report["min_jaccard"]) == (14, 8, 0.7)
    assert sum(report["similarities"]) == 1 and report["similarities"][int(similarity * 50)] == 1


def test_evals_are_reported_where_a_whole_shard_was_gone_before(folder: Path) -> None:
    report = read_json(folder / "decontaminate.json")
    [found] = report["sets"].values()
    assert (report["documents"], report["removed"]) == (40, 2)
    assert (found["evals"], found["found"], found["documents"]) == (1, 1, 2)
    assert list(report["texts"].values()) == [LEAK]


def test_the_table_fits_the_width_that_it_is_given() -> None:
    funnel = Funnel()
    funnel.add(FunnelRow("near_dedup", (12_345_678, 10**12), (11_000_000, 9 * 10**11), 512.25, {"near " * 20: 9}))
    funnel.add(FunnelRow("pii", (11_000_000, 9 * 10**11), (11_000_000, 9 * 10**11), 1.0))
    head, first, second = funnel.table(100).split("\n")
    assert len(first) == 100 and first.endswith("…")
    assert head.index("seconds") + len("seconds") == first.index("512.2") + 5 == second.index("1.0") + 3
    assert funnel.table().split("\n")[1].endswith("9 " + ("near " * 20).rstrip())
