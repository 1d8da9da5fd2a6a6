"""Cuts a long text into windows whose predictions together are each of its tokens once.

The first window predicts as many tokens as fit after the token that begins a text. Later ones predict the next tokens, and are
filled from the left with real text up to the model's length, so that each prediction has as much context as can be had at no
extra reading: the windows of the LM evaluation harness (`loglikelihood_rolling`).
"""

from __future__ import annotations

from collections.abc import Sequence


def windows(tokens: Sequence[int], begin: int, length: int) -> list[tuple[list[int], list[int]]]:
    """(context, predicted tokens) of each window, for a model that reads `length` tokens; the last prediction is not read."""
    if not tokens:
        return []
    done = min(length, len(tokens))
    found = [([begin], list(tokens[:done]))]
    while done < len(tokens):
        end = min(len(tokens), done + length)
        found.append((list(tokens[end - length - 1 : done]), list(tokens[done:end])))
        done = end
    return found
