"""Eval files: the layouts of real sets, by hand; tokens against tiktoken and HF tokenizers; the report; real leaks."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer

from ingot.data.apply import apply
from ingot.data.contamination.evals import Eval, EvalFiles, eval_texts, evals
from ingot.data.steps.decon import DeconStep
from ingot.data.steps.decon.tokens import PATTERNS, tokens_of
from ingot.data.steps.decontaminate import DecontaminateStep
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError
from tests.data.decontaminate.oracle import word_list
from tests.making.rows import write_rows

Rows = Callable[[str], list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("row", "question", "answer", "passage"),
    [
        ({"question": "Q?", "answer": "A"}, "Q?", "A", ""),
        ({"question": "Q?", "choices": ["x", "y", "z"], "answer": 1}, "Q?", "y", ""),  # MMLU
        ({"question": "Q?", "options": ["A)1", "B)2"], "rationale": "so", "correct": "B"}, "Q?", "B)2", ""),  # AQuA
        ({"query": "Q?", "choices": ["x", "y"], "gold": 0}, "Q?", "x", ""),  # core_icl
        ({"context": "C", "continuation": "D"}, "C", "D", ""),  # LAMBADA
        ({"context_options": ["C1", "C2"], "continuation": "D", "gold": 1}, "C2", "D", ""),  # Winogrande
        ({"ctx": "C", "ctx_a": "c", "endings": ["e", "f"], "label": "1"}, "C", "f", ""),  # HellaSwag
        ({"problem": "P", "solution": "S", "answer": "5"}, "P", "S", ""),  # MATH
        ({"prompt": "P", "canonical_solution": "S", "test": "T"}, "P", "S", ""),  # HumanEval
        ({"text": "T", "code": "C", "task_id": 3}, "T", "C", ""),  # MBPP
        ({"code": "C", "input": "[1]", "output": "2"}, "C", "2", ""),  # CRUXEval
        ({"input": "I", "target": "T", "task": "t"}, "I", "T", ""),  # BBH
        ({"question": "Q", "best_answer": "B", "correct_answers": ["B", "C"]}, "Q", "B", ""),  # TruthfulQA
        ({"story": "S", "question": "Q", "answers": {"input_text": ["A", "B"]}}, "Q", "A", "S"),  # CoQA
        (
            {"question": [[{"role": "user", "content": "Q"}], [{"role": "user", "content": "R"}]]},
            "Q\nR",
            "",
            "",
        ),  # BFCL
        ({"query": "Question: Why?\n", "choices": ["x", "y"], "gold": 0}, "Why?", "x", ""),  # PIQA
        ({"context": "Question: Who?\nAnswer:", "answer": "B"}, "Who?", "B", ""),  # TriviaQA
        (
            {"query": "Passage: P p.\nMore.\nQuestion: is it?\nAnswer:", "gold": 1, "choices": ["no", "yes"]},
            "is it?",
            "yes",
            "Passage: P p.\nMore.",
        ),  # BoolQ
        (
            {"context": "Title: T\nBackground: B.\nQuestion: Q?\nAnswer:", "answers": ["a b", "a"]},
            "Q?",
            "a b",
            "Title: T\nBackground: B.",
        ),  # SQuAD
        ({"turns": ["one", "two"]}, "one\ntwo", "", ""),  # MT-Bench
    ],
)
def test_layouts(tmp_path: Path, row: dict[str, Any], question: str, answer: str, passage: str) -> None:
    (tmp_path / "set.jsonl").write_text(json.dumps(row))
    (found,) = evals([f"{tmp_path}/set.jsonl"])
    name = f"{tmp_path.name}/set"
    assert found == Eval(name, str(row.get("task_id", 1)), question, answer, passage)


def test_fields_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"stem": "Q", "key": "k7", "reply": "A", "about": "P", "note": "N"}\n')
    source = EvalFiles(files=f"{tmp_path}/a.jsonl", name="mine", question="stem", answer="reply", passage="about")
    assert list(evals([source])) == [Eval("mine", "k7", "Q", "A", "P")]
    assert next(eval_texts([source], [])).texts == ("Q", "A", "P")
    with pytest.raises(DataError, match=r"row 1: no field reply2\n  fix: name one of stem, key, reply, about, note"):
        list(evals([source.model_copy(update={"answer": "reply2"})]))
    with pytest.raises(DataError, match=r"no question among the fields stem, key, reply, about, note"):
        list(evals([source.files]))


def test_a_changed_eval_file_is_other_work(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "Q"}\n')
    step = DecontaminateStep(against=[str(path)])
    before = step.annotation_key()
    path.write_text('{"question": "R"}\n')
    assert step.annotation_key() != before


def test_every_set_of_the_real_data_has_questions(shared_data: Path, rows_of: Rows) -> None:
    """Each file gives as many evals as it has rows, nearly all of them with an answer."""
    folders = ("aqua", "bbh/bbh.jsonl.gz", "cruxeval", "hellaswag", "humaneval", "math", "mbpp", "mmlu", "truthfulqa")
    for folder in (*folders, "core_icl/arc_easy.jsonl.gz", "core_icl/winogrande.jsonl.gz"):
        found = list(islice(evals([str(shared_data / folder)]), 2000))
        assert all(item.question for item in found)
        assert sum(bool(item.answer) for item in found) > 0.99 * len(found)


@pytest.mark.parametrize("name", ["cl100k_base.tiktoken.gz", "r50k_base.tiktoken.gz", "smollm2_tokenizer.json.gz"])
def test_tokens_are_those_of_the_whole_text(shared_data: Path, rows_of: Rows, name: str) -> None:
    """Word by word gives what the library gives for the cleaned text in one piece."""
    path = shared_data / "tokenizers" / name
    texts = [row["text"][:3000] for row in rows_of("udhr/udhr.jsonl.gz")[::9]]
    texts += [row["text"][:3000] for row in rows_of("peps/peps_half.jsonl.gz")[:40]]
    texts += ["", "a", "x² + 10000000 ≠ ½ 😀😀 naïve’s\u2028E=mc²"]
    raw = gzip.decompress(path.read_bytes())
    if name.endswith(".json.gz"):
        tokenizer = Tokenizer.from_str(raw.decode())

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
            return ids
    else:
        ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, raw.splitlines())}
        pattern = PATTERNS[len(ranks)]
        encode = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary
    found = tokens_of(Texts.of(texts), str(path))
    to_space = str.maketrans(dict.fromkeys("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~“”‘’—", " "))
    for number, text in enumerate(texts):
        cleaned = "".join(f" {word}" for word in text.lower().translate(to_space).split())
        own = found.values[found.offsets[number] : found.offsets[number + 1]]
        assert own.tolist() == (encode(cleaned) if cleaned else [])


def test_a_vocabulary_that_joins_words_is_refused(tmp_path: Path) -> None:
    from tokenizers import models

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="reach over a space"):
        tokens_of(Texts.of(["a b"]), str(tmp_path / "tokenizer.json"))
    (tmp_path / "x.tiktoken").write_text("YQ== 0\n")
    with pytest.raises(DataError, match="not the ranks of a vocabulary that is known: 1"):
        tokens_of(Texts.of(["a b"]), str(tmp_path / "x.tiktoken"))


def test_decon_finds_the_same_with_cl100k(shared_data: Path, rows_of: Rows) -> None:
    questions = rows_of("gsm8k/test_dev.jsonl.gz")[:40]
    pages = [row["text"][:1500] for row in rows_of("standard_ebooks/books.jsonl.gz")[:80]]
    planted = [
        f"{page} {row['question']} {row['answer']} {page[:90]}" for page, row in zip(pages, questions, strict=False)
    ]
    against = [str(shared_data / "gsm8k" / "test_dev.jsonl.gz")]
    for tokens in ("words", str(shared_data / "tokenizers" / "cl100k_base.tiktoken.gz")):
        step = DeconStep(against=against, tokens=tokens)
        table = apply(step, [*planted, *pages])
        assert [name is not None for name in table["removed_by"].to_pylist()] == [True] * 40 + [False] * 80
        assert table["contamination_eval"].to_pylist()[:40] == [str(number + 1) for number in range(40)]
        span = table["contamination_spans"][3].as_py()[0]
        assert planted[3][span["start"] : span["end"]] == questions[3]["question"].rstrip("?")


def test_tasks_built_on_eval_sets_are_found(shared_data: Path, rows_of: Rows) -> None:
    """Super-NaturalInstructions has tasks made from PIQA: real leaks that nobody planted here. Tasks of translation
    hold none. The truth is by containment: the task's input has the eval's question word for word."""
    rows = rows_of("superni/train_instances.jsonl.gz")
    piqa = [f"{row['input']}\n{row['output']}" for row in rows if "piqa" in row["task"]]
    clean = [f"{row['input']}\n{row['output']}" for row in rows if "translation" in row["task"]][:400]
    assert len(piqa) >= 40
    step = DecontaminateStep(against=[str(shared_data / "core_icl" / "piqa.jsonl.gz")])
    found = [reason is not None for reason in apply(step, [*piqa, *clean])["removed_by"].to_pylist()]
    goals = [
        " ".join(word_list(row["query"].removeprefix("Question:"), "letters"))
        for row in rows_of("core_icl/piqa.jsonl.gz")
    ]
    goals = [goal for goal in goals if goal.count(" ") >= 7]
    texts = [" ".join(word_list(text, "letters")) for text in piqa]
    held = [any(goal in text for goal in goals) for text in texts]
    assert sum(held) >= 1
    assert all(is_found for is_found, holds in zip(found, held, strict=False) if holds)
    assert sum(found[len(piqa) :]) <= 1


def test_the_report(tmp_path: Path) -> None:
    """Two of three evals of one set are in documents, none of the other set."""

    def numbered(prefix: str) -> str:
        return " ".join(f"{prefix}{number}" for number in "abcdefghijklmnopqrstuvwxyz")

    one = [{"question": numbered(prefix)} for prefix in ("foo", "bar", "baz")]
    write_rows(tmp_path / "one.jsonl", one)
    (tmp_path / "two.jsonl").write_text(json.dumps({"question": numbered("qux")}) + '\n{"question": "too short"}\n')
    documents = [f"Before. {numbered('foo')} After.", "nothing to see", numbered("bar"), numbered("foo")]
    for step in (DecontaminateStep(against=[str(tmp_path)]), DeconStep(against=[str(tmp_path)])):
        table = apply(step, documents)
        found = step.report([table.slice(0, 2), table.slice(2)])
        report, shown = found.content, found.lines
        assert (report["documents"], report["removed"]) == (4, 3)
        first, second = (report["sets"][f"{tmp_path.name}/{name}"] for name in ("one", "two"))
        assert {key: first[key] for key in ("evals", "searched", "found", "documents")} == {
            "evals": 3, "searched": 3, "found": 2, "documents": 3,
        }  # fmt: skip
        assert (first["ids"], second["ids"]) == (["1", "2"], [])
        assert first["share_found"] == pytest.approx(2 / 3, abs=1e-5)
        assert [example["document"] for example in first["examples"]] == ["0", "2", "3"]
        assert first["examples"][0]["text"].startswith("fooa foob fooc")
        assert first["examples"][0]["eval_text"] == numbered("foo")
        assert (second["evals"], second["searched"], second["found"], second["examples"]) == (2, 1, 0, [])
        assert shown[0] == "3 of 4 documents hold an eval"
        assert shown[2].split() == [f"{tmp_path.name}/one", "3", "3", "2", "66.7%", "3"]
