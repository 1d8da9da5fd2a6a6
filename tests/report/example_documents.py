"""What curate and tokenizer leave behind: a funnel, removed samples, statistics.

The texts hold what breaks careless pages: script elements, closing tags, U+2028, emoji, endless words, lone surrogates,
and template marks.
"""

from __future__ import annotations

import random
from typing import Any

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
}


def funnel() -> list[dict[str, Any]]:
    """Seven curation steps; one removes nothing."""
    steps = [
        ("read", 0.0, 0.0),
        ("extract", 0.031, 0.012),
        ("language", 0.058, 0.074),
        ("quality_rules", 0.184, 0.117),
        ("exact_duplicates", 0.121, 0.093),
        ("near_duplicates", 0.086, 0.071),
        ("decontaminate", 0.0013, 0.004),
    ]
    documents, size, rows = 18412, 186_400_000, []
    for index, (step, lost_documents, lost_bytes) in enumerate(steps):
        kept_documents, kept_size = round(documents * (1 - lost_documents)), round(size * (1 - lost_bytes))
        rows.append(
            {
                "step": step,
                "documents_in": documents,
                "documents_out": kept_documents,
                "bytes_in": size,
                "bytes_out": kept_size,
                "seconds": 1.3 * index + 0.4,
                "reasons": RULES.get(step, {}),
            }
        )
        documents, size = kept_documents, kept_size
    return rows


LICENCE = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software.

The above copyright notice and this permission notice shall be included in all copies of the Software."""


def removed(rng: random.Random) -> list[dict[str, Any]]:
    """Samples of what the funnel removed; the hostile texts are all among them."""
    rows: list[dict[str, Any]] = []

    def add(step: str, reason: str, text: str, **more: Any) -> None:
        rows.append(
            {
                "id": f"doc-{len(rows):05d}",
                "source": rng.choice(["site-packages", "stdlib", "readme"]),
                "step": step,
                "reason": reason,
                "text": text,
                "bytes": len(text.encode("utf-8", "surrogatepass")) * 3,
            }
            | more
        )

    for text in HOSTILE:
        add("quality_rules", "quality_rules: symbol_share above 0.3", text)
    for index in range(60):
        add(
            "quality_rules",
            "quality_rules: " + ("too_short", "repeated_lines 0.9", "mean_word_length")[index % 3],
            f"Table of contents {index}\n" * (index + 1),
        )
    for index in range(30):
        other = LICENCE.replace("software", "program" if index % 2 else "<em>software</em>", 1).replace(
            "sell copies", f"sell {index} copies 🧪"
        )
        add(
            "near_duplicates",
            f"near_duplicates: jaccard {0.8 + index / 200:.3f}",
            f"Copyright (c) 20{index:02d} The authors\n\n{LICENCE}",
            duplicate_of=f"doc-9{index:04d}",
            duplicate_text=f"Copyright (c) 1999 Somebody else\n\n{other}",
        )
    for _ in range(9):
        add("exact_duplicates", "same sha256", "# -*- coding: utf-8 -*-\n", duplicate_of="doc-90001")
    # Spans count code points: with emoji before them, UTF-16 offsets would be wrong.
    text = "🧪🧪 notes: What is 17 * 24 ? The answer is 408."
    add(
        "decontaminate",
        "13-gram of a held-out task",
        text,
        spans=[[text.index("What"), text.index("?") + 1], [text.index("408"), len(text) - 1]],
    )
    add("language", "not English", "Dies ist ein deutscher Satz über Straßenbau und Brücken.")
    return rows


STATISTICS: dict[str, Any] = {
    "vocabulary_size": 4096,
    "training_documents": 10_804,
    "training_bytes": 24_118_220,
    "longest_tokens": [" implementation", "</script>", " 🧪", "        "],
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
