"""Thoughts that went on for too long, cut and closed: what a model learns to stop thinking from (Hermes 4, arXiv 2508.18255).

    the model's own    <think> t_1 … t_n …              n > limit, finished or not
    what is kept       <think> t_1 … t_limit </think>   and the end of the turn, without an answer

An `sft` stage with `learn: ["</think>"]` has its loss on these two tokens alone: the model learns that a thought ends there and
nothing about what to think.
"""

from __future__ import annotations

from ingot.envs.episode import Episode
from ingot.tokens.chat import ChatFormat, Message

CLOSE = "</think>"


def cut_thought(episode: Episode, chat: ChatFormat, limit: int) -> Message | None:
    """The first turn with its thought cut after `limit` tokens; None if it did not think for so long."""
    nodes = episode.segments[0].nodes
    turn = next((number for number, node in enumerate(nodes) if node.sampled), None)
    if turn is None:
        return None
    close = chat.tokenizer.token(CLOSE)
    written = nodes[turn].tokens[:limit]
    if len(nodes[turn].tokens) <= limit or close in written:
        return None
    cut = chat.parse([*written, close, chat.turn_end], in_thinking=chat.opens_trace(nodes[turn - 1].tokens))
    return cut if cut.thinking and not cut.problems else None
