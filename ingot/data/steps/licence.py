"""The step `licence` finds the licence of a file: SPDX identifiers in the beginning of the text.

    tag       `SPDX-License-Identifier: MIT OR Apache-2.0`: taken as it is
    phrases   sentences that only one licence has, in its header or in its text, compared on lower-case words

A text that carries two licences gives both, `A AND B`. This is evidence, not legal advice: a file without a notice may
still be under the licence of its repository, and a quotation of a licence is taken for one.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pyarrow
from pydantic import Field, model_validator

from ingot.data.step import PerText, Rule
from ingot.data.text.texts import Texts

PERMISSIVE = (
    *("0BSD", "Apache-2.0", "Artistic-2.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0"),
    *("CC0-1.0", "curl", "HPND", "ISC", "MIT", "MIT-0", "NCSA", "PostgreSQL", "PSF-2.0", "Python-2.0", "Unicode-3.0"),
    *("Unlicense", "WTFPL", "X11", "Zlib"),
)

TAG = re.compile(
    r"SPDX-License-Identifier:[ \t]*\(?([A-Za-z0-9][\w.+-]*(?:[ \t()]+(?:AND|OR|WITH)[ \t()]+[A-Za-z0-9][\w.+-]*)*)"
)
HINT = re.compile(rb"(?i)licen[cs]e|permission|redistribution|public domain|spdx|copyright")
WORDS = re.compile(r"[^a-z0-9]+")
GNU = r"gnu {name} (?:general )?public licen[cs]e(?: as published by the free software foundation)?"
VERSIONS = r"(?: \w+){{0,12}}? (?:version|v) ?{version}\b"
LATER = re.compile(r"\bany later version\b|\bor later\b")
GNU_NAMES = {"AGPL": "affero", "LGPL": "(?:lesser|library)", "GPL": ""}
GNU_VERSIONS = {"AGPL": ("3",), "LGPL": ("2.1", "2", "3"), "GPL": ("2", "3")}
# Every pattern of a licence must be found, and none behind its exclamation mark.
PHRASES: dict[str, tuple[str, ...]] = {
    "Apache-2.0": (r"apache (?:software )?licen[cs]e(?: \w+)?(?: as)?,? ?(?:version|v) ?2(?: 0)?\b",),
    "MIT": (
        "permission is hereby granted free of charge to any person obtaining a copy of this software and associated",
        "the above copyright notice and this permission notice",
        "!except as contained in this notice",
    ),
    "X11": (
        "permission is hereby granted free of charge to any person obtaining a copy of this software and associated",
        "except as contained in this notice the names? of",
    ),
    "MIT-0": (
        "permission is hereby granted free of charge to any person obtaining a copy of this software and associated",
        "!the above copyright notice and this permission notice",
        "!subject to the following conditions",
    ),
    "BSD-3-Clause": (
        "redistribution and use in source and binary forms",
        r"(?:neither the names? of|the names? of \w+(?: \w+){0,8} may not be used)",
    ),
    "BSD-2-Clause": (
        "redistribution and use in source and binary forms",
        "!neither the names? of",
        "!may not be used to endorse",
    ),
    "ISC": (
        r"permission to use copy modify and (?:or )?distribute this software for any purpose with or without fee "
        r"is hereby granted(?: provided)",
    ),
    "0BSD": (
        r"permission to use copy modify and or distribute this software for any purpose with or without fee is "
        r"hereby granted the software is",
    ),
    "HPND": (r"permission to use copy modify and distribute this software and its documentation for any purpose",),
    "MPL-2.0": (r"mozilla public licen[cs]e,?(?: version| v)? ?2(?: 0)",),
    "EPL-2.0": (r"eclipse public licen[cs]e (?:version |v ?)?2(?: 0)",),
    "BSL-1.0": (r"boost software licen[cs]e(?: version)? 1 0",),
    "Zlib": ("altered source versions must be plainly marked as such",),
    "Unlicense": ("this is free and unencumbered software released into the public domain",),
    "CC0-1.0": (r"(?:cc0 1 0 universal|creative commons (?:cc0|zero))",),
    "CC-BY-4.0": (r"creative commons attribution 4 0 international",),
    "CC-BY-SA-4.0": (r"creative commons attribution share ?alike 4 0",),
    "PSF-2.0": (r"python software foundation licen[cs]e",),
    "Artistic-2.0": (r"artistic licen[cs]e 2 0",),
    "WTFPL": ("do what the fuck you want to public licen[cs]e",),
    "PostgreSQL": (
        "permission to use copy modify and distribute this software and its documentation for any purpose without "
        "fee and without a written agreement",
    ),
    "NCSA": (r"university of illinois ncsa open source licen[cs]e",),
}
COMPILED = {
    licence: [(phrase.startswith("!"), re.compile(phrase.removeprefix("!"))) for phrase in phrases]
    for licence, phrases in PHRASES.items()
}
INSTEAD = {"PostgreSQL": "HPND"}  # the first says all that the second does, and more


def gnu_licences(words: str) -> list[str]:
    """GPL, LGPL and AGPL with their versions, as `GPL-3.0-or-later`."""
    found = []
    for family, name in GNU_NAMES.items():
        title = GNU.format(name=name).replace("gnu  ", "gnu ")
        for version in GNU_VERSIONS[family]:
            spelt = version.replace(".", " ")
            follows = r"(?! \d)" if version == "2" and family == "LGPL" else ""
            notice = re.search(
                title + VERSIONS.format(version=spelt).replace("{{", "{").replace("}}", "}") + follows, words
            )
            if notice is None and family != "AGPL":
                notice = re.search(rf"\b{family.lower()} ?v?{spelt}(?: 0)?\b{follows}", words)
            if notice:
                later = LATER.search(words, notice.start(), notice.end() + 200)
                number = version if "." in version else f"{version}.0"
                found.append(f"{family}-{number}-{'or-later' if later else 'only'}")
                break
        if found:  # the lesser and the Affero licence mention the plain one
            break
    return found


def licence_of(text: str) -> str | None:
    """The licence of the beginning of a file as an SPDX expression, or None."""
    tag = TAG.search(text)
    if tag:
        return " ".join(tag[1].replace("(", " ").replace(")", " ").split())
    words = WORDS.sub(" ", text.lower())
    found = [
        licence
        for licence, phrases in COMPILED.items()
        if all((pattern.search(words) is None) == absent for absent, pattern in phrases)
    ]
    found = [licence for licence in found if licence not in {INSTEAD.get(other) for other in found}]
    if "MPL-2.0" not in found:  # its text names the GNU licences it can be combined with
        found += gnu_licences(words)
    return " AND ".join(sorted(found)) or None


def parts_of(expression: str) -> tuple[bool, list[str]]:
    """Whether any one licence of an expression is enough, and the licences."""
    plain = re.sub(r" WITH \S+", "", expression)
    return " OR " in plain, re.split(r" (?:AND|OR) ", plain)


class LicenceStep(PerText):
    """Fill `licence` with SPDX identifiers found in the text: a tag, a header or a whole licence. See licence.py."""

    rate = 15
    decides = frozenset({"allowed", "permissive", "unknown"})

    head_bytes: int = Field(
        default=12_000,
        ge=200,
        description="bytes of a file that are searched; licence texts are recognised by their beginning",
    )
    allowed: list[str] = Field(
        default=[], description="documents with a licence that is none of these are removed (empty: none is)"
    )
    permissive: bool = Field(default=False, description="add the usual permissive licences to `allowed`")
    unknown: Literal["keep", "remove"] = Field(
        default="keep", description="documents in which no licence is found, where some are `allowed`"
    )

    @model_validator(mode="after")
    def _allows_some(self) -> LicenceStep:
        if not self.accepted():
            instead = "name those that may in `allowed`, or set permissive: true"
            self.refuse("unknown", because="every licence may stay", instead=instead)
        return self

    def writes(self) -> tuple[str, ...]:
        return ("licence",)

    def accepted(self) -> frozenset[str]:
        """Every licence that may stay; empty if all may."""
        return frozenset(self.allowed) | frozenset(PERMISSIVE if self.permissive else ())

    def measure(self, texts: Texts) -> dict[str, Any]:
        found: list[str | None] = []
        for start, end in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
            head = texts.data[start : min(end, start + self.head_bytes)].tobytes()
            found.append(licence_of(head.decode("utf-8", "ignore")) if HINT.search(head) else None)
        return {"licence": pyarrow.array(found, pyarrow.string())}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        accepted = self.accepted()
        if not accepted:
            return []
        licences = columns.column("licence").to_pylist()
        broken = []
        for licence in licences:
            if licence is None:
                broken.append(self.unknown == "remove")
                continue
            any_is_enough, parts = parts_of(licence)
            broken.append(not (any if any_is_enough else all)(part in accepted for part in parts))
        return [Rule("licence", np.array(broken, bool), licences, "is not allowed")]
