"""The step `url_filter` removes documents from unwanted addresses, by lists of the user in the kinds of datatrove and DCLM:

    domains             hosts; a document goes if its host or a domain above it is listed (example.org for www.example.org)
    urls                whole addresses
    banned_words        words between anything but letters and digits of the address; one is enough
    soft_banned_words   such words; `min_soft_words` different ones are needed
    banned_parts        anywhere in the address, after everything but letters and digits was taken out

Letters match in either case. A document without an address stays.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow
from pydantic import Field, model_validator

from ingot.data.read.streams import read_list
from ingot.data.step import PerDocument, Rule, numbers
from ingot.workspace.files import fingerprint

NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")


def host_and_parents(url: str) -> list[str]:
    """`a.b.org`, `b.org`, `org` for `https://a.b.org:80/path`; nothing if there is no host."""
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:  # a broken IPv6 host
        return []
    parts = host.strip(".").split(".")
    return [".".join(parts[start:]) for start in range(len(parts))] if host else []


class UrlFilterStep(PerDocument):
    """Remove documents by their address, with lists of the user's in the kinds that RefinedWeb and FineWeb use."""

    rate = 580
    decides: ClassVar[frozenset[str]] = frozenset({"min_soft_words"})

    url: str = Field(default="url", description="the column with the address")
    domains: list[str] = Field(default=[], description="files of hosts and domains, one a line")
    urls: list[str] = Field(default=[], description="files of whole addresses")
    banned_words: list[str] = Field(default=[], description="files of words of which one in the address is enough")
    soft_banned_words: list[str] = Field(default=[], description="files of words of which several are needed")
    banned_parts: list[str] = Field(default=[], description="files of strings that may not occur inside the address")
    min_soft_words: int = Field(
        default=2, ge=1, description="a document with this many different soft words is removed"
    )

    @model_validator(mode="after")
    def _has_lists(self) -> UrlFilterStep:
        if not any((self.domains, self.urls, self.banned_words, self.soft_banned_words, self.banned_parts)):
            raise ValueError(
                "nothing to look for: give files in domains, urls, banned_words, soft_banned_words or banned_parts"
            )
        if not self.soft_banned_words:
            self.refuse("min_soft_words", because="there are no soft_banned_words to be counted")
        return self

    def reads(self) -> tuple[str, ...]:
        return (self.url, *self.where)

    def writes(self) -> tuple[str, ...]:
        return ("_url_match", "_url_soft_words")

    def outside(self) -> dict[str, str]:
        files = [*self.domains, *self.urls, *self.banned_words, *self.soft_banned_words, *self.banned_parts]
        return {file: fingerprint(Path(file)) for file in files}

    @cached_property
    def _lists(self) -> dict[str, set[str]]:
        names = ("domains", "urls", "banned_words", "soft_banned_words", "banned_parts")
        lists = {name: {entry.lower() for path in getattr(self, name) for entry in read_list(path)} for name in names}
        lists["banned_parts"] = {NOT_ALPHANUMERIC.sub("", part) for part in lists["banned_parts"]} - {""}
        return lists

    def _match(self, url: str) -> tuple[str | None, int]:
        """What on the hard lists the address matches, and how many soft words it has."""
        lists = self._lists
        url = url.strip().lower()
        for domain in host_and_parents(url):
            if domain in lists["domains"]:
                return f"domain {domain}", 0
        if url in lists["urls"]:
            return "address", 0
        words = set(NOT_ALPHANUMERIC.split(url))
        if banned := words & lists["banned_words"]:
            return f"word {min(banned)}", 0
        joined = NOT_ALPHANUMERIC.sub("", url)
        parts = [part for part in lists["banned_parts"] if part in joined]
        return (f"part {min(parts)}" if parts else None), len(words & lists["soft_banned_words"])

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        found = [self._match(url or "") for url in documents.column(self.url).to_pylist()]
        return {
            "_url_match": pyarrow.array([match for match, _ in found], pyarrow.string()),
            "_url_soft_words": pyarrow.array([count for _, count in found], pyarrow.int64()),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        matches = columns.column("_url_match").to_pylist()
        soft, limit = numbers(columns, "_url_soft_words"), self.min_soft_words
        return [
            Rule("listed url", np.array([match is not None for match in matches], bool), matches),
            Rule("soft words in the url", soft >= limit, soft, f">= {limit}"),
        ]

    def say(self) -> list[str]:
        return [
            f"url_filter: {', '.join(f'{len(entries)} {name}' for name, entries in self._lists.items() if entries)}"
        ]
