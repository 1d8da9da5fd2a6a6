"""Estimates how deeply the elements of a page are nested, without parsing it.

HTML parsers and extractors need time in the square of the depth, so that a page of 100,000 `<div>` stops a worker for
minutes. One pass over the bytes counts open tags minus closed ones. Elements without an end tag (`<br>`) or with one that
may be left out (`<p>`, `<li>`) are not counted; scripts and comments are jumped over.
"""

from __future__ import annotations

import numpy as np

from ingot.data.native import kernel


def code_of(name: str) -> int:
    """The first eight letters of a tag name as one number."""
    return int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "big")


NAMES = (
    # without an end tag
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
    # the end tag may be left out
    "p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "caption",
    "option", "optgroup", "rb", "rt", "rp", "html", "head", "body",
    # drawings, and what is jumped over
    "path", "circle", "rect", "line", "polygon", "polyline", "ellipse", "use", "stop", "g", "svg", "script",
    "style",
)  # fmt: skip
NOT_COUNTED = np.array(sorted(map(code_of, NAMES)), np.uint64)
SCRIPT, STYLE = np.uint64(code_of("script")), np.uint64(code_of("style"))


@kernel
def depth_of(data: np.ndarray) -> int:
    """The largest number of elements that are open at the same time, roughly."""
    size = len(data)
    depth = deepest = 0
    at = 0
    skip = np.uint64(0)  # inside of this element: only its end tag counts
    while at < size - 2:
        if data[at] != 60:  # <
            at += 1
            continue
        at += 1
        closing = data[at] == 47  # /
        at += closing
        name = np.uint64(0)
        letters = 0
        while at < size and letters < 8:
            letter = data[at] | 32
            if not (97 <= letter <= 122 or (letters and 48 <= data[at] <= 57)):
                break
            name = (name << np.uint64(8)) | np.uint64(letter)
            letters += 1
            at += 1
        if not letters:
            continue
        name <<= np.uint64(8 * (8 - letters))
        if skip:
            if closing and name == skip:
                skip = np.uint64(0)
            continue
        if not closing and name in (SCRIPT, STYLE):
            skip = name
            continue
        index = np.searchsorted(NOT_COUNTED, name)
        if index < len(NOT_COUNTED) and NOT_COUNTED[index] == name:
            continue
        if closing:
            depth -= depth > 0
        else:
            depth += 1
            deepest = max(deepest, depth)
    return deepest
