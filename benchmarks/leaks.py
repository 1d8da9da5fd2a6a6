"""A labelled set for decontamination, made from real evals and real web text: leaks in disguise and hard negatives.

    leak        an eval is in the document: whole, without its answer, in other clothes, changed, cut, half of it
    clean       no eval is, but something looks like one: a licence, a quoted book, the words that all items of an eval
                share, another question of the same kind, a textbook on the same subject
    variant     a maths problem with other numbers. Neither: who trains on it has seen the problem, but not the answer.
                Shown, not counted

What is planted stands in the middle of a real web page; licences and chapters of books are whole documents. The same seed
gives the same set (but for the licences, which are those of the installed packages).
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ingot.data.contamination.evals import Eval, evals

Label = Literal["leak", "clean", "variant"]

SETS = (
    *(
        "gsm8k/test_dev",
        "mmlu/test_dev",
        "mmlu/val",
        "hellaswag/val_dev",
        "math/math500_dev",
        "humaneval/humaneval_dev",
    ),
    *("mbpp/mbpp", "truthfulqa/truthfulqa", "ifeval/ifeval_dev", "core_icl/arc_easy", "core_icl/arc_challenge"),
    *("core_icl/svamp", "core_icl/boolq", "core_icl/bigbench_logical_deduction", "core_icl/commonsense_qa"),
    *("core_icl/triviaqa_sm_sub", "core_icl/lambada_openai", "core_icl/squad_1000"),
)
LONG_WORDS = 18  # a question that is long enough to be changed and still be itself
TEMPLATE_WORDS, TEMPLATE_EVALS = 10, 15  # words that open at least this many evals are a template

SYNONYMS = {
    "many": "numerous", "big": "large", "buys": "purchases", "bought": "purchased", "gives": "hands", "gave": "handed",
    "each": "every", "total": "overall", "following": "listed", "most": "best", "likely": "probable", "find": "determine",
    "best": "most accurately", "man": "person", "woman": "lady", "shows": "displays", "begins": "starts", "makes": "creates",
    "also": "moreover", "because": "since", "often": "frequently", "help": "assist", "write": "code", "number": "quantity",
    "returns": "gives back", "which": "what", "per": "each", "then": "afterwards", "only": "just", "several": "various",
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A document with what is known about it."""

    text: str
    label: Label
    kind: str


def against(data: Path) -> list[str]:
    """The eval files that are searched for."""
    return [str(data / f"{name}.jsonl.gz") for name in SETS]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a jsonl.gz file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        yield from map(json.loads, file)


def labelled_set(data: Path, per_kind: int, seed: int = 0) -> list[Sample]:
    """`per_kind` samples of every kind (fewer where the data has fewer)."""
    random_source = random.Random(seed)
    pages = web_pages(data)
    random_source.shuffle(pages)
    next_page = iter(pages * 40)
    items = [item for item in evals(against(data)) if item.answer]
    long = [item for item in items if len(item.question.split()) >= LONG_WORDS]
    short = [item for item in items if 8 <= len(item.question.split()) < LONG_WORDS]
    random_source.shuffle(long)
    random_source.shuffle(short)

    def plant(texts: list[str], label: Label, kind: str) -> list[Sample]:
        return [Sample(inside(next(next_page), text, random_source), label, kind) for text in texts[:per_kind]]

    samples: list[Sample] = []
    for number, (kind, disguise) in enumerate(LEAKS.items()):
        chosen = long[number * per_kind : (number + 1) * per_kind]
        samples += plant([disguise(item, random_source) for item in chosen], "leak", kind)
    samples += plant([with_answer(item, random_source) for item in short], "leak", "short, with answer")
    maths = [item.question for item in long if item.set.startswith(("gsm8k", "core_icl/svamp"))]
    samples += plant([other_numbers(text, random_source) for text in maths], "variant", "other numbers")
    train = [f"{row['question']}\n{row['answer']}" for row in rows(data / "gsm8k/train.jsonl.gz")]
    samples += plant(random_source.sample(train, per_kind), "clean", "other question of its kind")
    alike = templates(items)
    samples += plant(random_source.sample(alike, min(per_kind, len(alike))), "clean", "template of an eval")
    for kind, texts in whole_documents(data, pages).items():
        samples += [Sample(text, "clean", kind) for text in random_source.sample(texts, min(2 * per_kind, len(texts)))]
    return samples


def web_pages(data: Path) -> list[str]:
    """Real pages, to stand around what is planted."""
    found = [row["text"] for row in rows(data / "llamafactory_demo/c4_demo.jsonl.gz")]
    found += [row["text"] for row in rows(data / "dclm_human_quality/docs.jsonl.gz")]
    return [text[:4000] for text in found if len(text) > 400]


def inside(page: str, text: str, random_source: random.Random) -> str:
    """The page with the text between two of its words."""
    words = [match.start() for match in re.finditer(r"\s", page)]
    place = words[random_source.randrange(len(words))] if words else 0
    return f"{page[:place]}\n{text}\n{page[place:]}"


# Leaks.


def with_answer(item: Eval, _: random.Random) -> str:
    return f"{item.question}\n{item.answer}"


def question_only(item: Eval, _: random.Random) -> str:
    return item.question


def other_clothes(item: Eval, random_source: random.Random) -> str:
    """Upper case, no punctuation, or breaks of HTML between sentences; the words are the same."""
    text = f"{item.question}\n{item.answer}"
    style = random_source.randrange(3)
    if style == 0:
        return text.upper()
    if style == 1:
        return re.sub(r"[^\w\s]", " ", text)
    return "<p>" + re.sub(r"(?<=[.?!])\s+|\n+", " <br/> ", text) + "</p>"


def changed(item: Eval, random_source: random.Random) -> str:
    """One word in 14 replaced (a synonym where there is one, else the neighbour's place), the answer kept."""
    words = item.question.split()
    for place in range(random_source.randrange(7), len(words) - 1, 14):
        if words[place].lower() in SYNONYMS:
            words[place] = SYNONYMS[words[place].lower()]
        else:
            words[place], words[place + 1] = words[place + 1], words[place]
    return f"{' '.join(words)}\n{item.answer}"


def reordered(item: Eval, random_source: random.Random) -> str:
    """Its sentences in another order, with the answer behind."""
    sentences = re.split(r"(?<=[.?!])\s+", item.question)
    random_source.shuffle(sentences)
    return f"{' '.join(sentences)}\n{item.answer}"


def cut(item: Eval, _: random.Random) -> str:
    """The last 15 % of the question are missing, and the answer."""
    words = item.question.split()
    return " ".join(words[: len(words) * 85 // 100])


def half(item: Eval, random_source: random.Random) -> str:
    """Only the first or the second half of the question."""
    words = item.question.split()
    middle = len(words) // 2
    return " ".join(words[:middle] if random_source.random() < 0.5 else words[middle:])


LEAKS: dict[str, Callable[[Eval, random.Random], str]] = {
    "question and answer": with_answer,
    "question only": question_only,
    "other clothes": other_clothes,
    "words changed": changed,
    "sentences reordered": reordered,
    "cut to 85 %": cut,
    "half of it": half,
}


def other_numbers(text: str, random_source: random.Random) -> str:
    """A maths problem with every number replaced by another."""
    return re.sub(r"\d+", lambda match: str(int(match[0]) + random_source.randrange(1, 40)), text)


# What only looks like a leak.


def whole_documents(data: Path, pages: list[str]) -> dict[str, list[str]]:
    """Documents that nobody made from an eval, by kind."""
    return {
        "chapter of an old book": [row["text"] for row in rows(data / "standard_ebooks/books.jsonl.gz")],
        "chapter of a textbook": [row["text"] for row in rows(data / "openstax/modules.jsonl.gz")],
        "licence": licences(),
        "web page": pages,
    }


def licences() -> list[str]:
    """Licences of the packages of the running interpreter: real, and different on every machine."""
    from importlib.metadata import distributions

    found: set[str] = set()
    for package in distributions():
        for file in package.files or []:
            if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
                path = Path(str(file.locate()))
                if path.is_file():
                    found.add(path.read_text(encoding="utf-8", errors="replace"))
    return sorted(text for text in found if len(text) > 500)


def templates(items: list[Eval]) -> list[str]:
    """The words that open many evals, each followed by something that no eval has."""
    openings = Counter(" ".join(item.question.split()[:TEMPLATE_WORDS]) for item in items)
    common = [text for text, count in sorted(openings.items()) if count >= TEMPLATE_EVALS]
    common += ["Which of the following statements is true?", "Choose the correct answer from the options below."]
    common += ["Read the passage and answer the question that follows it in one sentence."]
    endings = (
        "my cat sleeps on the warm radiator",
        "the bus to the harbour was late again",
        "we met at noon by the old mill",
    )
    return [f"{text} {ending}, number {number}." for text in common for number, ending in enumerate(endings * 4)]
