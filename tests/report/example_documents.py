"""What curate and tokenizer leave behind: a funnel, removed samples, statistics.

The texts hold what breaks careless pages: script elements, closing tags, U+2028, emoji, endless words, lone surrogates,
and template marks.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!-- <script> ]]> --> &lt;b&gt; &amp; {{data}} {{script}}",
    "line\u2028separator and paragraph\u2029separator",
    "emoji 🧪👩‍🔬 flags 🇩🇪 عربى עברית 中文",
    "endless" + "word" * 120,
    "quotes \" ' ` backslash \\ </style> null-like \\u0000 control \x07 lone \ud83d surrogate",
)


RULES = {
    "quality_rules": {"too_short": 1404, "repeated_lines": 911, "mean_word_length": 520, "symbol_share": 257},
    "near_duplicates": {"jaccard": 1037},
    "decontaminate": {"holds an eval:": 14},
}


def row(step: str, documents: tuple[int, int], size: tuple[int, int], seconds: float, **more: Any) -> dict[str, Any]:
    """A row of funnel.json; tokens at 4.2 bytes."""
    return {
        "step": step,
        "documents_in": documents[0],
        "documents_out": documents[1],
        "bytes_in": size[0],
        "bytes_out": size[1],
        "tokens_in": round(size[0] / 4.2),
        "tokens_out": round(size[1] / 4.2),
        "seconds": seconds,
        "reasons": RULES.get(step, {}),
        "repaired": {},
        "bytes_cut": 0,
    } | more


def funnel() -> list[dict[str, Any]]:
    """Files are selected and read, then seven steps; one rewrites texts and removes nothing."""
    read = {"reasons": {"not a page": 40, "not JSON": 3}, "repaired": {"not UTF-8": 7}}
    rows = [
        row("select", (240, 212), (224_000_000, 201_000_000), 0.1, reasons={"budget": 28}),
        row("read", (212, 18412), (201_000_000, 186_400_000), 3.2, **read),
    ]
    steps = [
        ("extract", 0.031, 0.012),
        ("pii", 0.0, 0.001),
        ("language", 0.058, 0.074),
        ("quality_rules", 0.184, 0.117),
        ("exact_duplicates", 0.121, 0.093),
        ("near_duplicates", 0.086, 0.071),
        ("decontaminate", 0.0013, 0.004),
    ]
    for index, (step, lost_documents, lost_bytes) in enumerate(steps):
        documents, size = rows[-1]["documents_out"], rows[-1]["bytes_out"]
        kept_documents, kept_size = round(documents * (1 - lost_documents)), round(size * (1 - lost_bytes))
        cut = {"extract": 800_000, "pii": size - kept_size}.get(step, 0)
        rows.append(row(step, (documents, kept_documents), (size, kept_size), 1.3 * index + 0.4, bytes_cut=cut))
    return rows


LICENCE = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software.

The above copyright notice and this permission notice shall be included in all copies of the Software."""


def removed(rng: random.Random) -> list[dict[str, Any]]:
    """Samples of what the funnel removed; the hostile texts are all among them."""
    rows: list[dict[str, Any]] = []

    def add(step: str, rule: str, detail: str, text: str, **more: Any) -> None:
        rows.append(
            {
                "id": f"doc-{len(rows):05d}",
                "source": rng.choice(["site-packages", "stdlib", "readme"]),
                "step": step,
                "rule": rule,
                "reason": f"{step}: {rule} {detail}".rstrip(),
                "text": text,
                "bytes": len(text.encode("utf-8", "surrogatepass")) * 3,
            }
            | more
        )

    for text in HOSTILE:
        add("quality_rules", "symbol_share", "above 0.3", text)
    for index in range(60):
        add(
            "quality_rules",
            ("too_short", "repeated_lines", "mean_word_length")[index % 3],
            "0.9",
            f"Table of contents {index}\n" * (index + 1),
        )
    for index in range(30):
        other = LICENCE.replace("software", "program" if index % 2 else "<em>software</em>", 1).replace(
            "sell copies", f"sell {index} copies 🧪"
        )
        add(
            "near_duplicates",
            "jaccard",
            f"{0.8 + index / 200:.3f}",
            f"Copyright (c) 20{index:02d} The authors\n\n{LICENCE}",
            duplicate_of=f"doc-9{index:04d}",
            duplicate_text=f"Copyright (c) 1999 Somebody else\n\n{other}",
        )
    for _ in range(9):
        add("exact_duplicates", "same sha256", "", "# -*- coding: utf-8 -*-\n", duplicate_of="doc-90001")
    # Spans count code points: with emoji before them, UTF-16 offsets would be wrong.
    text = "🧪🧪 notes: What is 17 * 24 ? The answer is 408."
    add(
        "decontaminate",
        "holds an eval:",
        "“What is 17 * 24” of sums:12",
        text,
        spans=[[text.index("What"), text.index("?") + 1], [text.index("408"), len(text) - 1]],
    )
    add("language", "not English", "0.31 < 0.65", "Dies ist ein deutscher Satz über Straßenbau und Brücken.")
    return rows


def rewritten() -> list[dict[str, Any]]:
    """What steps made of texts: a page lost its markup, an address was masked behind an emoji."""
    page = "<html><head><title>Engines</title></head><body><p>How engines burn fuel.</p></body></html>"
    mail = "🧪 write to anna@firm.de if the <b>pump</b> leaks"
    return [
        {
            "id": "page-1",
            "source": "web",
            "step": "extract",
            "before": page,
            "after": "How engines burn fuel.",
            "skipped": 0,
        },
        {
            "id": "mail-1",
            "source": "web",
            "step": "pii",
            "before": mail,
            "after": mail.replace("anna@firm.de", "email@example.com"),
            "skipped": 1480,
        },
    ]


def problems() -> list[dict[str, Any]]:
    """What could not be read, with the place and the beginning of it."""
    size = {"bytes": 40, "source": "web"}
    return [
        {"place": f"web:crawl.warc@{index}", "rule": "not a page", "detail": "status 302", "text": "", "kept": False}
        | size
        for index in range(9)
    ] + [
        {"place": "web:a.jsonl@17", "rule": "not JSON", "detail": "line 1", "text": HOSTILE[0], "kept": False} | size,
        {"place": "web:a.jsonl@99", "rule": "not UTF-8", "detail": "at byte 3", "text": "caf\ufffd", "kept": True}
        | size,
    ]


DECONTAMINATION: dict[str, Any] = {
    "documents": 10_900,
    "removed": 14,
    "sets": {
        "sums": {
            "evals": 658,
            "searched": 650,
            "found": 13,
            "documents": 14,
            "examples": [],
            "ids": ["12"],
            "share_found": 0.019757,
        },
        "quiz/dev": {
            "evals": 285,
            "searched": 285,
            "found": 0,
            "documents": 0,
            "examples": [],
            "ids": [],
            "share_found": 0.0,
        },
    },
    "texts": {"sums:1": "What is 3 + 4 ?", "sums:12": "WHAT is 17 * 24 ? Show <b>all</b> steps."},
}
BANDING: dict[str, Any] = {
    "bands": 14,
    "rows": 8,
    "shingles": "words",
    "size": 5,
    "min_jaccard": 0.7,
    "knee": (1 / 14) ** (1 / 8),
    "similarities": [0] * 36 + [3, 0, 9, 20, 0, 41] + [100] * 8,
}


def kept_table() -> pyarrow.Table:
    """Documents that were kept, with columns of their steps; numbers, lists and gaps among them."""
    count = 40
    return pyarrow.table(
        {
            "id": [f"kept-{index}" for index in range(count)],
            "text": [f"Document {index} <script>1</script> 🧪 " + "text " * 600 for index in range(count)],
            "source": ["web"] * count,
            "kind": ["prose"] * count,
            "quality": [index / count for index in range(count)],
            "language": [None if index % 2 else "en" for index in range(count)],
            "scores": [[1, index] for index in range(count)],
        }
    )


STATISTICS: dict[str, Any] = {
    "vocabulary_size": 4096,
    "training_documents": 10_804,
    "training_bytes": 24_118_220,
    "held_out": {
        "all": {
            "documents": 200,
            "bytes": 2_412_881,
            "tokens": 707_030,
            "words": 402_166,
            "bytes_per_token": 3.4127,
            "fertility": 1.7581,
            "continued_word_share": 0.2381,
        },
        "code": {
            "documents": 120,
            "bytes": 1_311_427,
            "tokens": 434_247,
            "words": 190_122,
            "bytes_per_token": 3.02,
            "fertility": 2.284,
            "continued_word_share": 0.3114,
        },
        "prose": {
            "documents": 80,
            "bytes": 1_101_454,
            "tokens": 272_783,
            "words": 212_044,
            "bytes_per_token": 4.0379,
            "fertility": 1.2864,
            "continued_word_share": 0.1728,
        },
    },
}
