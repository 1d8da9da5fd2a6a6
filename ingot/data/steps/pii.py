"""The step `pii` masks personal data as FineWeb does: e-mail addresses, public IPv4 addresses and, if asked, phone numbers.

What is found is replaced by reserved examples in rotation, which starts again in each document. E-mail addresses and
IP addresses are found with the regular expressions of datatrove; a phone number is a North American one (Dolma). The
expressions look only at runs of bytes that can hold a match.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ingot.data.step import PerText
from ingot.data.text.runs import digit_at, positions_of, runs
from ingot.data.text.texts import Texts

ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
BYTE = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
EMAIL = re.compile(
    rf"\b{ATOM}(?:\.{ATOM})*@(?:(?:{LABEL}\.)+{LABEL}|\[(?:{BYTE}\.){{3}}(?:{BYTE}|[A-Za-z0-9-]*[A-Za-z0-9]:)])"
)
IP = re.compile(rf"(?:{BYTE}\.){{3}}{BYTE}")
PHONE = re.compile(r"(?<![\d.])(?:\+?1[-. ]?)?\(?\d{3}\)?[-. ]?\d{3}[-. ]?\d{4}(?![\d])")
ALPHANUMERIC = (string.ascii_letters + string.digits).encode()


OPTIONS = {
    "emails": ("email_replacements",),
    "ips": ("ip_replacements", "public_ips_only"),
    "phones": ("phone_replacements",),
}
"""By kind, the options that are of it alone."""


@dataclass(frozen=True)
class PiiMatch:
    """Bytes [start, end) of the batch that are masked."""

    start: int
    end: int
    kind: str


def _window(texts: Texts, text: int, start: int, end: int) -> tuple[str, int]:
    """The run as a string that begins with the character before it, if there is one, and where the run begins in it:
    an expression may ask what stands before."""
    before = start
    if start > texts.offsets[text]:
        before = start - 1
        while texts.data[before] & 0xC0 == 0x80:
            before -= 1
    return texts.data[before:end].tobytes().decode("utf-8"), int(before < start)


def is_public(address: str) -> bool:
    """A global IPv4 address; numbers with leading zeros are none."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


class PiiStep(PerText):
    """Mask e-mail addresses and public IP addresses as FineWeb does, and phone numbers if asked. Rewrites the text."""

    rate = 72

    emails: bool = Field(default=True, description="mask e-mail addresses")
    ips: bool = Field(default=True, description="mask IPv4 addresses")
    public_ips_only: bool = Field(default=True, description="leave private, local and reserved addresses alone")
    phones: bool = Field(default=False, description="mask North American phone numbers")
    email_replacements: list[str] = Field(
        default=["email@example.com", "firstname.lastname@example.org"],
        min_length=1,
        description="put in place of e-mail addresses, in turn",
    )
    ip_replacements: list[str] = Field(
        default=[
            "22.214.171.124",
            "126.96.36.199",
            "188.8.131.52",
            "184.108.40.206",
            "220.127.116.11",
            "18.104.22.168",
        ],
        min_length=1,
        description="put in place of IP addresses, in turn (no host answered there when FineWeb chose them)",
    )
    phone_replacements: list[str] = Field(
        default=["555-0100"], min_length=1, description="put in place of phone numbers, in turn"
    )

    @model_validator(mode="after")
    def _masks(self) -> PiiStep:
        if not (self.emails or self.ips or self.phones):
            raise ValueError("nothing to mask: set emails, ips or phones to true, or leave the step out")
        for kind, options in OPTIONS.items():
            if not getattr(self, kind):
                self.refuse(*options, because=f"{kind}: false masks none", instead=f"set {kind}: true")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("text", "_pii_emails", "_pii_ips", "_pii_phones", "_pii_spans")

    def measure(self, texts: Texts) -> dict[str, Any]:
        matches = self._matches(texts)
        counts = {kind: np.zeros(len(texts), np.int64) for kind in ("email", "ip", "phone")}
        spans: list[list[int] | None] = [None] * len(texts)
        parts: list[bytes] = []
        copied = int(texts.offsets[0])
        growth = np.zeros(len(texts), np.int64)
        for text, found in sorted(matches.items()):
            begin = int(texts.offsets[text])
            in_text: list[int] = []
            for match in sorted(found, key=lambda match: match.start):
                used = counts[match.kind][text]
                choices = getattr(self, f"{match.kind}_replacements")
                replacement = choices[used % len(choices)].encode()
                parts += [texts.data[copied : match.start].tobytes(), replacement]
                copied = match.end
                counts[match.kind][text] += 1
                growth[text] += len(replacement) - (match.end - match.start)
                first = len(texts.data[begin : match.start].tobytes().decode("utf-8"))
                in_text += [first, first + len(texts.data[match.start : match.end].tobytes().decode("utf-8"))]
            spans[text] = in_text
        parts.append(texts.data[copied : texts.offsets[-1]].tobytes())
        offsets = np.concatenate(([0], np.cumsum(np.diff(texts.offsets) + growth)))
        return {
            "text": Texts(np.frombuffer(b"".join(parts), np.uint8), offsets),
            "_pii_emails": counts["email"],
            "_pii_ips": counts["ip"],
            "_pii_phones": counts["phone"],
            "_pii_spans": pyarrow.array(spans, pyarrow.list_(pyarrow.int64())),
        }

    def _matches(self, texts: Texts) -> dict[int, list[PiiMatch]]:
        """By text: what is masked, without overlap; an earlier kind goes first."""
        found: dict[int, list[PiiMatch]] = defaultdict(list)
        for kind, pattern, candidates in self._candidates(texts):
            for text, start, end in candidates.tolist():
                window, first = _window(texts, text, start, end)
                taken = found[text]
                for match in pattern.finditer(window, first):
                    if kind == "ip" and self.public_ips_only and not is_public(match.group()):
                        continue
                    # A run is ASCII: positions in it are positions in the bytes.
                    begins, ends = start + match.start() - first, start + match.end() - first
                    if not any(begins < other.end and other.start < ends for other in taken):
                        taken.append(PiiMatch(begins, ends, kind))
        return {text: matches for text, matches in found.items() if matches}

    def _candidates(self, texts: Texts) -> Iterator[tuple[str, re.Pattern[str], NDArray[np.int64]]]:
        """For each kind that is wanted: its expression and the runs that can hold a match."""
        digits = string.digits.encode()
        if self.emails:
            allowed = ALPHANUMERIC + b"!#$%&'*+/=?^_`{|}~-.@[]:"
            yield "email", EMAIL, runs(texts, positions_of(texts, b"@"), allowed)
        if self.ips:
            dots = positions_of(texts, b".")
            dots = dots[digit_at(texts, dots - 1) & digit_at(texts, dots + 1)]
            yield "ip", IP, runs(texts, dots, digits + b".")
        if self.phones:
            numbers = np.flatnonzero((texts.data >= ord("0")) & (texts.data <= ord("9")))
            numbers = numbers[(numbers >= texts.offsets[0]) & (numbers < texts.offsets[-1])]
            yield "phone", PHONE, runs(texts, numbers, digits + b" ()+.-")
