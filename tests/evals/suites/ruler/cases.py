"""What Ingot's RULER and NVIDIA's are both run on: the same texts, questions, tokenizer, and answers to be scored."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

from ingot.tokens.tokenizer import TOKENIZER_FILE, Tokenizer
from tests.making.rows import read_rows

LENGTHS = (4096, 8192)  # shorter ones make NVIDIA's scripts look for a fitting sample for ever
COUNT = 3
QUESTIONS = 200


def tokenizer(data: Path) -> Tokenizer:
    """SmolLM2's."""
    packed = data / "tokenizers" / "smollm2_tokenizer.json.gz"
    return Tokenizer.from_files({TOKENIZER_FILE: gzip.decompress(packed.read_bytes())}, "SmolLM2")


def essay(data: Path) -> str:
    """A text to hide needles in."""
    with gzip.open(data / "standard_ebooks" / "books.jsonl.gz", "rt", encoding="utf-8") as file:
        return str(json.loads(next(file))["text"])


def squad_rows(data: Path) -> list[dict[str, Any]]:
    """Questions of SQuAD, those of one article and of one paragraph together."""
    rows = read_rows(data / "core_icl" / "squad_1000.jsonl.gz")[:QUESTIONS]
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        background, question = re.split(r"\nQuestion: ", row["context"].split("\nBackground: ", 1)[1])
        found = {"question": question.removesuffix("\nAnswer:"), "answers": row["answers"]}
        articles.setdefault(row["title"], {}).setdefault(background, []).append(found)
    return [
        {"title": title, "context": context, **question}
        for title, paragraphs in articles.items()
        for context, questions in paragraphs.items()
        for question in questions
    ]


def hotpotqa_rows(data: Path) -> list[dict[str, Any]]:
    """The same paragraphs in the form of HotpotQA: three of them for each question."""
    rows = squad_rows(data)
    return [
        {
            "question": row["question"],
            "answer": row["answers"][0],
            "context": [
                [each["title"], each["context"].split(". ")] for each in (rows + rows)[number : number + 20 : 7]
            ],
        }
        for number, row in enumerate(rows[:80])
    ]


def answers() -> list[tuple[str, list[str]]]:
    """Answers with their references, odd ones among them."""
    rng = random.Random(7)
    references = [["4821377"], ["1234567", "7654321", "1111111", "9999999"], ["New York", "new york city", "NYC"]]
    references += [
        ["ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"],
        ["straße", "Ⅷ", "İstanbul"],
        ["a\tb"],
        ["x\ny", "don't"],
    ]
    found = []
    for group in references:
        shuffled = [rng.sample(group, len(group)) for _ in range(4)]
        joined = [sign.join(each) for each in shuffled for sign in (", ", "\n", "", "\x00", " and\u2028")]
        found += [(text, group) for text in joined]
        found += [(text.upper(), group) for text in joined[:4]] + [(text.lower(), group) for text in joined[:4]]
        found += [(f"\x07 {group[0][:-1]}", group), ("", group), ("  \n\t ", group), (group[0] * 3, group)]
        found += [(f"The answer is {group[-1]}.", group), (f"{group[0][:2]}\x00{group[0][2:]}", group)]
        found += [(group[0][::-1], group), (" ".join(group[0]), group), (f"<think>{group[0]}</think>", group)]
    return found
