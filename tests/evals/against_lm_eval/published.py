"""Rows of published sets in the form that the hub has them, made from the files of shared/data, and the suites that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.making.rows import read_rows

Row = dict[str, Any]
LETTERS = "ABCDE"


def rows_of(data: Path, name: str, count: int | None = None) -> list[Row]:
    return read_rows(data / f"{name}.jsonl.gz")[:count]


def labelled(choices: list[str]) -> dict[str, list[str]]:
    return {"text": choices, "label": list(LETTERS[: len(choices)])}


def arc(row: Row) -> Row:
    question = row["query"].removeprefix("Question: ")
    return {"question": question, "choices": labelled(row["choices"]), "answerKey": LETTERS[row["gold"]]}


def piqa(row: Row) -> Row:
    goal = row["query"].removeprefix("Question: ").removesuffix("\n")
    return {"goal": goal, "sol1": row["choices"][0], "sol2": row["choices"][1], "label": row["gold"]}


def openbookqa(row: Row) -> Row:
    return {"question_stem": row["query"], "choices": labelled(row["choices"]), "answerKey": LETTERS[row["gold"]]}


def boolq(row: Row) -> Row:
    passage, question = row["query"].removeprefix("Passage: ").rsplit("\nQuestion: ", 1)
    return {"passage": passage, "question": question.removesuffix("?"), "label": row["gold"]}


def _lines(text: str) -> list[str]:
    return [line.split(" ", 1)[1] for line in text.strip().split("\n")]


def commonsense_qa(row: Row) -> Row:
    question, listed = row["query"].removeprefix("Question: ").removesuffix("\nAnswer:").split("\nChoices:\n")
    # lm-eval's prompt names five choices; these rows have four
    return {
        "question": question,
        "choices": labelled([*_lines(listed), "none of them"]),
        "answerKey": LETTERS[row["gold"]],
    }


def siqa(row: Row) -> Row:
    context, rest = row["query"].removeprefix("Context: ").removesuffix("\nAnswer:").split("\nQuestion: ")
    question, listed = rest.split("\nChoices:\n")
    first, second = _lines(listed)
    return {
        "context": context,
        "question": question,
        "answerA": first,
        "answerB": second,
        "answerC": "none of them",
        "label": str(row["gold"] + 1),
    }


def winogrande(row: Row) -> Row:
    first, second = row["context_options"]
    shared = max(place for place in range(len(first)) if second.startswith(first[:place]))
    start = first.rfind(" ", 0, shared + 1) + 1
    return {
        "sentence": f"{first[:start]}_ {row['continuation']}",
        "option1": first[start:],
        "option2": second[start:],
        "answer": str(row["gold"] + 1),
    }


def copa(row: Row) -> Row:
    premise, _, connector = row["query"].rpartition(" ")
    first, second = row["choices"]
    kind = {"because": "cause", "therefore": "effect"}[connector]
    return {"premise": f"{premise}.", "question": kind, "choice1": first, "choice2": second, "label": row["gold"]}


def logiqa(row: Row) -> Row:
    context, rest = row["query"].removeprefix("Context: ").split("\nQuestion: ")
    question, listed = rest.split("\nChoices: ")
    options = _lines(listed)
    return {"context": context, "question": question, "options": options, "label": "abcd"[row["gold"]]}


def lambada(row: Row) -> Row:
    return {"text": f"{row['context']} {row['continuation']}"}


def truthfulqa(row: Row) -> Row:
    right, wrong = row["correct_answers"], row["incorrect_answers"]
    return {
        "question": row["question"],
        "mc1_targets": {"choices": [row["best_answer"], *wrong], "labels": [1] + [0] * len(wrong)},
        "mc2_targets": {"choices": [*right, *wrong], "labels": [1] * len(right) + [0] * len(wrong)},
    }


def agieval(row: Row) -> Row:
    return {"query": row["query"], "choices": row["choices"], "gold": [row["gold"]]}


def aqua(row: Row) -> Row:
    """The columns of AQuA, and those of CommonsenseQA and ARC, whose prompts AQuA's two forms have."""
    texts = [option.partition(")")[2] for option in row["options"]]
    columns = {"question": row["question"].strip(), "options": row["options"], "correct": row["correct"]}
    return {**columns, "choices": labelled(texts), "answerKey": row["correct"]}


def agieval_aqua(row: Row) -> Row:
    """As AGIEval has the problems of AQuA."""
    choices = [f"({option}" for option in row["options"]]
    query = f"Q: {row['question']} Answer Choices: {' '.join(choices)}\nA: Among A through E, the answer is"
    return {"query": query, "choices": choices, "gold": [LETTERS.index(row["correct"])]}


def same(row: Row) -> Row:
    return row


ACCURACY = {"accuracy": "acc"}
ACCURACIES = {"accuracy": "acc", "accuracy_by_character": "acc_norm"}


@dataclass(frozen=True)
class Published:
    """A suite of ours, and the task of lm-eval that it should equal."""

    suite: str
    file: str  # of shared/data
    task_file: str  # of lm-eval
    convert: Callable[[Row], Row] = same
    split: str = "test"  # that is scored
    pool: str | None = "train"  # that worked examples are from
    metrics: Mapping[str, str] = field(default_factory=lambda: ACCURACIES)  # ours: lm-eval's
    shots: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.suite if self.shots is None else f"{self.suite}-{self.shots}-shot"


VALIDATION: dict[str, Any] = {"split": "validation"}
CLOZE: dict[str, Any] = {"form": "cloze", "scores": ["raw", "character"]}
SETS = (
    Published("arc_easy", "core_icl/arc_easy", "arc/arc_easy.yaml", arc, shots=3),
    Published("arc_challenge", "core_icl/arc_challenge", "arc/arc_challenge.yaml", arc),
    Published("hellaswag", "hellaswag/val_dev", "hellaswag/hellaswag.yaml", **VALIDATION),
    Published("hellaswag", "hellaswag/val_dev", "hellaswag/hellaswag.yaml", **VALIDATION, shots=4),
    Published("piqa", "core_icl/piqa", "piqa/piqa.yaml", piqa, **VALIDATION),
    Published("openbookqa", "core_icl/openbook_qa", "openbookqa/openbookqa.yaml", openbookqa),
    Published("boolq", "core_icl/boolq", "super_glue/boolq/default.yaml", boolq, **VALIDATION, metrics=ACCURACY),
    Published(
        "commonsense_qa",
        "core_icl/commonsense_qa",
        "commonsense_qa/default.yaml",
        commonsense_qa,
        **VALIDATION,
        metrics=ACCURACY,
        shots=2,
    ),
    Published("siqa", "core_icl/siqa", "siqa/siqa.yaml", siqa, **VALIDATION, metrics=ACCURACY),
    Published(
        "winogrande", "core_icl/winogrande", "winogrande/default.yaml", winogrande, **VALIDATION, metrics=ACCURACY
    ),
    Published("copa", "core_icl/copa", "super_glue/copa/default.yaml", copa, **VALIDATION, metrics=ACCURACY),
    Published("logiqa", "core_icl/logi_qa", "logiqa/logiqa.yaml", logiqa),
    Published("agieval", "core_icl/agi_eval_lsat_lr", "agieval/lsat-lr.yaml", agieval, pool=None),
    Published("agieval", "aqua/dev_test", "agieval/aqua-rat.yaml", agieval_aqua, pool=None),
    Published("aqua", "aqua/dev_test", "commonsense_qa/default.yaml", aqua, metrics=ACCURACY, shots=2),
    Published("aqua", "aqua/dev_test", "arc/arc_easy.yaml", aqua, options=CLOZE),
    Published(
        "lambada",
        "core_icl/lambada_openai",
        "lambada/lambada_openai.yaml",
        lambada,
        pool=None,
        metrics={"accuracy": "acc", "perplexity": "perplexity"},
    ),
    Published(
        "truthfulqa", "truthfulqa/truthfulqa", "truthfulqa/truthfulqa_mc1.yaml", truthfulqa, **VALIDATION,
        pool=None, metrics={"mc1": "acc"},
    ),
    Published(
        "truthfulqa", "truthfulqa/truthfulqa", "truthfulqa/truthfulqa_mc2.yaml", truthfulqa, **VALIDATION,
        pool=None, metrics={"mc2": "acc"},
    ),
)  # fmt: skip
