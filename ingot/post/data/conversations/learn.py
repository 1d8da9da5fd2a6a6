"""Which tokens of a conversation are learnt: the weight of each in the loss.

    assistant      what the assistant writes, in all of its turns
    last           its last turn only
    everything     every token, the user's too (TRL without `assistant_only_loss`)
    [</think>]     of what the assistant writes, these tokens and the end of the turn: Hermes 4's second stage, which teaches
                   when to stop thinking and nothing about what to think (arXiv 2508.18255)

A message of weight 0 is never learnt. A conversation of which nothing is learnt is an error, never a silent no-op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingot.post.data.conversations.conversation import Conversation
from ingot.tokens.chat import ChatFormat
from ingot.workspace.errors import DataError

Learn = Literal["assistant", "last", "everything"] | tuple[str, ...]


def token_weights(
    chat: ChatFormat, tokens: Sequence[int], mask: Sequence[int], conversation: Conversation, learn: Learn
) -> list[float]:
    """The weight of each token; `mask` is 1 on what the assistant writes, each turn a run of it (tokens/chat.py)."""
    written = np.asarray(mask, dtype=np.int8)
    weights = np.ones(len(tokens), np.float32) if learn == "everything" else written.astype(np.float32)
    turns = _runs(written)
    wanted = _answer_weights(conversation)
    if len(turns) != len(wanted):
        raise DataError(
            f"{len(wanted)} assistant turns are rendered as {len(turns)}: the template joins two of them",
            fix="join the messages yourself, or use a template that prints something between two turns",
        )
    for number, (start, end) in enumerate(turns):
        if not wanted[number] or (learn == "last" and number < len(turns) - 1):
            weights[start:end] = 0
    if isinstance(learn, tuple):
        chosen = [*(chat.tokenizer.token(name) for name in learn), chat.turn_end]
        weights *= np.isin(np.asarray(tokens), chosen)
    if not weights.any():
        raise DataError("nothing of the conversation is learnt", fix="look at `learn` and at the messages' `weight`")
    return [float(weight) for weight in weights]


def _answer_weights(conversation: Conversation) -> list[float]:
    weights = conversation.weights or [1.0] * len(conversation.messages)
    pairs = zip(conversation.messages, weights, strict=True)
    return [weight for message, weight in pairs if message.role == "assistant"]


def _runs(mask: NDArray[np.int8]) -> list[tuple[int, int]]:
    """Where each run of ones begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask, [0]))))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
