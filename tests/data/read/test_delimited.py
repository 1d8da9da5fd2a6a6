"""CSV and TSV: against Python's csv and pandas, in curation and wherever rows of files are read."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any, Literal

import pandas  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.contamination.evals import evals
from ingot.data.read.config import FilesSource
from ingot.data.read.delimited import parsed_rows, table_form, table_rows
from ingot.data.steps.classify.labelled import read_labelled
from ingot.envs.rows import read_rows
from ingot.post.data.conversations.conversation_file import RowReading, read_row
from ingot.tokens.compare import read_texts
from ingot.workspace.errors import DataError
from ingot.workspace.files import write_jsonl
from tests.data.read.reading import read_all, texts

ROWS = [
    {"text": 'She said "no",\nand left.', "label": "story"},
    {"text": "Zwei Wörter, 文字", "label": "other, one"},
    {"text": "plain", "label": ""},
]


def write_csv(path: Path, rows: list[dict[str, str]], **options: Any) -> Path:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), **options)
    writer.writeheader()
    writer.writerows(rows)
    raw = out.getvalue().encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@given(
    st.lists(
        st.lists(st.text(st.sampled_from("ab\"',;\t\n é文\u2028"), max_size=6), min_size=2, max_size=2), max_size=8
    ),
    st.sampled_from(["csv", "tsv"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\r\n", "\n"]),
)
def test_rows_are_those_of_python_and_pandas(
    rows: list[list[str]], form: str, quoting: Literal[0, 1], end: str
) -> None:
    out = io.StringIO(newline="")
    delimiter = {"csv": ",", "tsv": "\t"}[form]
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows([["one", "two"], *rows])
    text = out.getvalue()
    ours = [row for _, row in table_rows(io.BytesIO(text.encode()), f"a.{form}", form)]
    assert ours == list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    table = pandas.read_csv(
        io.StringIO(text, newline=""), sep=delimiter, dtype=str, keep_default_na=False, index_col=False
    )
    assert ours == table.to_dict("records")


def test_rows_have_their_lines_and_what_is_no_row_costs_only_itself() -> None:
    raw = b'\xef\xbb\xbfa,b\n1,"x\ny"\n\n2\n3,4,5\n6,"7"8\n9,10\n11,"never closed\n'
    found = list(parsed_rows(io.BytesIO(raw), "a.csv", "csv"))
    assert [line for line, _ in found] == [2, 5, 6, 7, 8, 9]
    rows = [row for _, row in found]
    assert [row for row in rows if isinstance(row, dict)] == [
        {"a": "1", "b": "x\ny"},
        {"a": "2", "b": None},
        {"a": "9", "b": "10"},
    ]
    assert rows[2] == "3 values in 2 columns"
    with pytest.raises(DataError, match=r"a\.csv:6: the row is not CSV: 3 values in 2 columns\n  fix: "):
        list(table_rows(io.BytesIO(raw), "a.csv", "csv"))
    with pytest.raises(DataError, match=r"a\.csv:2: the row is not UTF-8"):
        list(table_rows(io.BytesIO(b"a\ncaf\xe9\n"), "a.csv", "csv"))


def test_names() -> None:
    assert [table_form(name) for name in ("x.csv", "X.TSV.gz", "csv", "x.csv.txt")] == ["csv", "tsv", "csv", None]


def test_curation_reads_them_as_it_reads_jsonl(tmp_path: Path) -> None:
    rows = [row | {"id": f"row {number}", "score": f"{number}.5"} for number, row in enumerate(ROWS)]
    write_csv(tmp_path / "a.csv", rows)
    options: dict[str, Any] = {"name": "s", "keep": {"label": "string", "score": "number"}}
    table, problems = read_all(FilesSource(files=str(tmp_path / "a.csv"), **options))
    write_jsonl(tmp_path / "a.jsonl", [row | {"score": number + 0.5} for number, row in enumerate(rows)])
    expected = read_all(FilesSource(files=str(tmp_path / "a.jsonl"), **options))[0]
    assert table == expected and not problems.dropped
    packed = write_csv(tmp_path / "a.tsv.gz", ROWS, delimiter="\t")
    assert texts(read_all(FilesSource(files=str(packed)))[0]) == [row["text"] for row in ROWS]
    assert read_all(FilesSource(files=str(packed)))[0].column("id").to_pylist()[1] == "files:a.tsv.gz:1"


def test_damage_in_curation(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text\ngood\n1,2\ncaf\xe9\n" "\n"never closed\n')
    (tmp_path / "b.csv").write_text("question,answer\n1,2\n")
    (tmp_path / "c.csv").write_text("text\n" + "x" * 999 + "\nshort\n")
    table, problems = read_all(FilesSource(files=str(tmp_path), name="s", max_document_bytes=500))
    assert texts(table) == ["good", "caf\ufffd", "short"]
    assert problems.dropped == {"not CSV": 3, "empty": 1, "no text column": 1}
    assert problems.repaired == {"not UTF-8": 1}
    [missing] = [each for each in problems.samples if each.rule == "no text column"]
    assert (missing.place, missing.detail[:37]) == ("s:b.csv", "'text' (there are: question, answer):")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv"])
def test_rows_of_conversations_pairs_and_evals(tmp_path: Path, name: str) -> None:
    path = write_csv(tmp_path / name, ROWS, delimiter="\t" if "tsv" in name else ",")
    assert [row for _, row in read_rows(str(path))] == ROWS
    assert [place for place, _ in read_rows(str(path))] == [f"{path}:{line}" for line in (2, 4, 5)]
    assert list(read_labelled(path, "text", "label")) == [(row["text"], row["label"]) for row in ROWS]
    assert [text for _, text in read_texts([path], None, 10**9)] == [row["text"] for row in ROWS]
    assert [each.question for each in evals([str(path)])] == [row["text"] for row in ROWS]


def test_a_conversation_file(tmp_path: Path) -> None:
    """The same conversations from CSV and from JSONL."""
    rows = [{"instruction": "Say a, b.", "output": "a,\nb"}, {"instruction": "Say c.", "output": "c"}]
    write_jsonl(tmp_path / "a.jsonl", rows)
    write_csv(tmp_path / "a.csv", rows)
    one, other = (
        [list(read_row("row", row, RowReading())) for _, row in read_rows(str(tmp_path / name))]
        for name in ("a.csv", "a.jsonl")
    )
    assert one == other and len(one) == 2
