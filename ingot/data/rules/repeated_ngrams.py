"""CPU kernels of the step `repeated_ngrams` (steps/repeated_ngrams.py)."""

from __future__ import annotations

from ingot.data.native import loop
from ingot.data.text.arrays import Hashes, Places


@loop
def repetitions(hashes: Hashes, offsets: Places, longest: int, result: Places) -> None:
    """The most repetitions in each text."""
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        best = 1 if last > first else 0
        for size in range(1, longest + 1):
            # Only a streak of best * size equal words or more counts, and it covers every so manieth word.
            word = first + size + best * size - 1
            while word < last:
                if hashes[word] != hashes[word - size]:
                    word += best * size
                    continue
                start = end = word
                while start > first + size and hashes[start - 1] == hashes[start - 1 - size]:
                    start -= 1
                while end < last and hashes[end] == hashes[end - size]:
                    end += 1
                best = max(best, (end - start) // size + 1)
                word = end + best * size
        result[text] = best
