"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ingot
from ingot.workspace.files import (
    atomic_file,
    atomic_folder,
    file_sha256,
    folder_bytes,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
    write_text,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
safe = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@safe
@given(
    row=st.dictionaries(
        st.sampled_from(["text", "id\u2028", "\x85"]), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_jsonl_keeps_every_line_break_inside_a_text(tmp_path: Path, row: dict[str, str]) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [row, {"text": "a\u2028b\x85c\x1cd\re"}])
    assert read_jsonl(tmp_path / "rows.jsonl") == [row, {"text": "a\u2028b\x85c\x1cd\re"}]


@safe
@given(value=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), values, max_size=3))
def test_json_round_trip(tmp_path: Path, value: object) -> None:
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == value


def test_a_failure_keeps_the_old_state(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    with pytest.raises(ValueError, match="half"), atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("new")
        raise ValueError("half")
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "a").write_text("new")
        raise ValueError("half")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_folder_replaces_an_older_one_wholly(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "deep").mkdir()
            (temporary / "deep" / name).write_text(name * 10)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "folder",
        "folder/deep",
        "folder/deep/two",
    ]
    assert folder_bytes(tmp_path) == 30
    assert file_sha256(tmp_path / "folder" / "deep" / "two") == hashlib.sha256(b"two" * 10).hexdigest()


WRITER = """
import sys
from pathlib import Path
from ingot.workspace.files import atomic_folder, write_text
folder = Path(sys.argv[1])
print("ready", flush=True)
for number in range(100000):
    write_text(folder / "file", str(number) * 20000)
    with atomic_folder(folder / "pair") as temporary:
        (temporary / "left").write_text(str(number))
        (temporary / "right").write_text(str(number))
"""


def test_kill_leaves_whole_files(tmp_path: Path) -> None:
    for pause in (0.02, 0.05, 0.09, 0.14):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(ingot.__file__).parents[1])},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(pause)
        process.kill()
        process.communicate(timeout=10)
        if (tmp_path / "file").exists():
            text = (tmp_path / "file").read_text()
            assert text == text[: len(text) // 20000] * 20000
        if (tmp_path / "pair").exists():
            assert (tmp_path / "pair" / "left").read_text() == (tmp_path / "pair" / "right").read_text()


def test_brackets_without_end_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "deep.json")
