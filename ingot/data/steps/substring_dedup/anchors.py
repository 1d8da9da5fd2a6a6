"""Finds anchors: the few positions of a text at which equal passages are sure to be compared (winnowing).

Every window of L bytes chooses one of the grams of k bytes inside it: the one with the smallest hash, the last of equals.

    anchor(x)  =  argmin over j in [x, x + L - k] of hash(data[j : j + k])

The choice depends on the bytes of the window only, so two equal windows choose grams at the same distance from their
beginnings (Schleimer, Wilkerson, Aiken 2003, "Winnowing"). Neighbouring windows mostly choose the same gram: there is one
anchor in about (L - k + 2) / 2 bytes. Comparing anchors therefore finds every repeat of L bytes, without sorting suffixes.

Text with a short period p ("-----", "0,0,0,") would choose a new gram every p bytes. A window that equals the one p bytes
before it is an *echo*: known to be a copy at once, and reported as a run of echoes instead of as anchors. For the
commonest case, p = 1, grams of one repeated byte are chosen last.

Invariant: every window of every document belongs to exactly one anchor or to one run of echoes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import finish, kernel
from ingot.data.text.texts import Texts
from ingot.workspace.errors import CheckFailed

BASE = np.uint64(0x9E3779B97F4A7C15)  # of the rolling hash: sum of byte * BASE^distance, modulo 2^64
ONE = np.uint64(1)
LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


def gram_bytes(length: int) -> int:
    """Bytes in a gram: long enough to be rare, short enough that anchors stay far apart."""
    return max(2, length // 3)


@dataclass(frozen=True)
class Anchors:
    """What `find_anchors` finds; positions are bytes from the beginning of the first text."""

    hashes: NDArray[np.uint64]
    windows: NDArray[np.int64]  # (n, 3): where the gram is, first and last window that chose it
    echoes: NDArray[np.int64]  # (m, 3): first and last window that equals the one a period before it, the period


@kernel
def grown(rows: np.ndarray) -> np.ndarray:
    """The same rows in an array of twice the length."""
    larger = np.empty((2 * len(rows), rows.shape[1]), rows.dtype)
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            larger[row, column] = rows[row, column]
    return larger


@kernel
def _winnow(data: np.ndarray, offsets: np.ndarray, length: int, gram: int) -> tuple[np.ndarray, np.ndarray]:
    """Anchors as rows (hash, gram, first window, last window), and echoes as rows (first window, last window, period)."""
    grams = length - gram + 1  # in a window
    ring = np.empty(grams, np.uint64)  # the hashes of the last of them
    leaving = ONE  # factor of the byte that leaves a gram
    for _ in range(gram):
        leaving *= BASE
    anchors, found = np.empty((4096, 4), np.int64), 0
    echoes, echoed = np.empty((16, 3), np.int64), 0
    for text in range(len(offsets) - 1):
        start, end = offsets[text], offsets[text + 1]
        if end - start < length:
            continue
        rolling = np.uint64(0)
        same = 0  # equal bytes in a row
        smallest, chosen = LAST, start - 1
        before_hash, before = LAST, start - 1  # what the window before chose
        period = 0
        echo = 0  # bytes in a row that equal the byte a period before
        slot = 0
        for at in range(start, end):
            rolling = rolling * BASE + np.uint64(data[at]) + ONE
            same = same + 1 if at > start and data[at] == data[at - 1] else 1
            here = at - gram + 1
            if here < start:
                continue
            if here > start:
                rolling -= (np.uint64(data[here - 1]) + ONE) * leaving
            value = LAST if same >= gram else finish(rolling)
            ring[slot] = value
            slot = slot + 1 if slot + 1 < grams else 0
            window = at - length + 1
            if value <= smallest:
                smallest, chosen = value, here
            elif chosen < window:  # the smallest has left: look through the whole window, which begins at `slot`
                smallest = LAST
                for index in range(slot, grams):
                    if ring[index] <= smallest:
                        smallest, chosen = ring[index], window + index - slot
                for index in range(slot):
                    if ring[index] <= smallest:
                        smallest, chosen = ring[index], window + index + grams - slot
            if window < start:
                continue
            if period:
                echo = echo + 1 if at - period >= start and data[at] == data[at - period] else 0
            step = chosen - before
            if 0 < step <= gram and smallest == before_hash and step != period and echo < length and before >= start:
                period, echo = step, 0
                while echo < length and at - echo - period >= start and data[at - echo] == data[at - echo - period]:
                    echo += 1
            before_hash, before = smallest, chosen
            if period and echo >= length:
                if echoed and echoes[echoed - 1, 1] == window - 1 and echoes[echoed - 1, 2] == period:
                    echoes[echoed - 1, 1] = window
                    continue
                if echoed == len(echoes):
                    echoes = grown(echoes)
                echoes[echoed, 0], echoes[echoed, 1], echoes[echoed, 2] = window, window, period
                echoed += 1
            elif found and anchors[found - 1, 1] == chosen and anchors[found - 1, 3] == window - 1:
                anchors[found - 1, 3] = window
            else:
                if found == len(anchors):
                    anchors = grown(anchors)
                anchors[found, 0], anchors[found, 1] = np.int64(smallest), chosen
                anchors[found, 2], anchors[found, 3] = window, window
                found += 1
    return anchors[:found], echoes[:echoed]


def find_anchors(texts: Texts, length: int) -> Anchors:
    """The anchors and echoes of all windows of `length` bytes; no window crosses from one text into the next."""
    offsets = texts.offsets - texts.offsets[0]
    anchors, echoes = _winnow(texts.data[texts.offsets[0] :], offsets, length, gram_bytes(length))
    windows = int(np.maximum(np.diff(offsets) - length + 1, 0).sum())
    owned = int((anchors[:, 3] - anchors[:, 2] + 1).sum() + (echoes[:, 1] - echoes[:, 0] + 1).sum())
    if windows != owned:
        raise CheckFailed(f"{windows} windows of {length} bytes, but {owned} have an anchor", place="substring_dedup")
    # Smallest hashes are small: without another multiplication they would all fall into the first partition of an exchange.
    hashes = np.ascontiguousarray(anchors[:, 0]).view(np.uint64) * BASE
    return Anchors(hashes, np.ascontiguousarray(anchors[:, 1:]), echoes)
