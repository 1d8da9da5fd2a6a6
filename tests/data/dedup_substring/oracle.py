"""What substring_dedup should do, the slow way: every window in a dictionary, every byte in a list."""

from __future__ import annotations

from collections import defaultdict


def struck_bytes(texts: list[bytes], length: int, keep_first: bool) -> list[list[bool]]:
    """By text and byte: whether it is struck, before coverage and whole characters are considered."""
    places: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for at in range(len(text) - length + 1):
            places[text[at : at + length]].append((number, at))
    struck = [[False] * len(text) for text in texts]
    for copies in places.values():
        if len(copies) < 2:
            continue
        first_text, first = copies[0]
        for number, at in copies[1:] if keep_first else copies:
            overlap = first + length if keep_first and number == first_text else 0
            for byte in range(max(at, overlap), at + length):
                struck[number][byte] = True
    return struck


def intervals_of(struck: list[bool]) -> list[tuple[int, int]]:
    """The struck bytes as intervals [start, end)."""
    edges = [at for at in range(len(struck) + 1) if (at < len(struck) and struck[at]) != (at > 0 and struck[at - 1])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def whole_characters(text: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The longest run of whole characters in the interval."""
    edges = [0]
    for character in text.decode():
        edges.append(edges[-1] + len(character.encode()))
    inside = [edge for edge in edges if start <= edge <= end]
    return (inside[0], inside[-1]) if len(inside) > 1 else None


def covered(intervals: list[tuple[int, int]], coverage: float) -> list[tuple[int, int]]:
    """The published merge: walk forwards and backwards, swallow the next interval while enough of the hull is struck."""
    marked = set()
    for order in (intervals, intervals[::-1]):
        stack: list[tuple[int, int, int]] = []
        for start, end in order:
            if stack:
                low, high = min(start, stack[-1][0]), max(end, stack[-1][1])
                if stack[-1][2] + end - start >= (high - low) * coverage:
                    stack[-1] = (low, high, stack[-1][2] + end - start)
                    continue
            stack.append((start, end, end - start))
        marked |= {byte for low, high, _ in stack for byte in range(low, high)}
    return intervals_of([byte in marked for byte in range(max(marked) + 1)]) if marked else []


def deduplicated(texts: list[str], length: int, keep_first: bool, coverage: float) -> list[str]:
    """The texts after the step."""
    encoded = [text.encode() for text in texts]
    results = []
    for text, struck in zip(encoded, struck_bytes(encoded, length, keep_first), strict=True):
        at, kept = 0, b""
        for start, end in covered(intervals_of(struck), coverage):
            if found := whole_characters(text, start, end):
                kept += text[at : found[0]]
                at = found[1]
        results.append((kept + text[at:]).decode())
    return results
