"""Prefill: reads chunks of prompts of many lengths in few padded passes.

On a GPU, where pages hold all that layers keep, a chunk is cut into rows of one length, and all chunks are read in one pass: a
layer writes the keys of all rows before any row attends to them, so the rows of one prompt see each other.

Elsewhere a pass handles rows of one padded length; the lengths are 8, 12, 16, 24, 32, 48, … so at most a third of a pass is
padding and few shapes occur. A CPU does not mind many shapes: there rows are padded to the longest of their pass, and passes are
cut where padding would cost more than another pass. A pass holds at most `TOKENS_PER_PASS` padded tokens, unless a single row
is longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.inference.memory import Memory
from ingot.inference.modify import to_device
from ingot.inference.request import Request
from ingot.inference.scoring import score_rows
from ingot.inference.speculate.module import ModuleDrafter
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.mixers.cache import PADDING_PAGE
from ingot.model.transformer import Transformer

SHORTEST_BUCKET = 8
TOKENS_PER_PASS = 8192
SHORTEST_ROW, LONGEST_ROW = 16, 128
PASS_TOKENS = 80  # padding that costs a CPU as much as another pass, which reads all weights once more

PromptChunk = tuple[Request, int, int]  # the tokens of its context from … to …


def bucket_length(length: int) -> int:
    """The smallest bucket that holds `length` tokens."""
    bucket = SHORTEST_BUCKET
    while bucket < length:
        if bucket + bucket // 2 >= length:
            return bucket + bucket // 2
        bucket *= 2
    return bucket


def plan_passes(lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Passes of (padded length, indices of the sequences) that together cover every sequence once."""
    buckets: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        buckets[bucket_length(length)].append(index)
    passes = []
    for padded, members in sorted(buckets.items()):
        rows = max(1, TOKENS_PER_PASS // padded)
        passes += [(padded, members[start : start + rows]) for start in range(0, len(members), rows)]
    return passes


def plan_tight_passes(lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """The same with exact lengths, cut so that padding and passes together cost least: over the sequences in the order of
    their lengths, cheapest[j] = min over i of cheapest[i] + cost of one pass over sequences i to j."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    cheapest, begins = [0.0], [0]
    for end in range(1, len(order) + 1):
        padded = max(SHORTEST_BUCKET, lengths[order[end - 1]])
        best = (float("inf"), end - 1)
        for begin in range(end - 1, -1, -1):
            rows = end - begin
            too_short = padded > SHORTEST_BUCKET and 3 * lengths[order[begin]] <= 2 * padded
            if rows > 1 and (too_short or rows * padded > TOKENS_PER_PASS):
                break
            best = min(best, (cheapest[begin] + PASS_TOKENS + rows * padded, begin))
        cheapest.append(best[0])
        begins.append(best[1])
    passes, end = list[tuple[int, list[int]]](), len(order)
    while end:
        members = order[begins[end] : end]
        passes.append((max(SHORTEST_BUCKET, lengths[members[-1]]), members))
        end = begins[end]
    return passes[::-1]


def read_chunks(
    model: Transformer, memory: Memory, chunks: Sequence[PromptChunk], drafter: ModuleDrafter | None = None
) -> None:
    """Compute what the caches keep of these tokens, what the drafter keeps of them, and the scores that requests ask for."""
    if not chunks:
        return
    lengths = [end - start for _, start, end in chunks]
    if memory.device.type == "cuda" and rows_split(model, drafter):
        row = row_length(lengths)
        _read(model, memory, row, cut_rows(chunks, row), drafter)
        return
    plan = plan_tight_passes if memory.device.type == "cpu" else plan_passes
    for padded, members in plan(lengths):
        # rings hold no more than the longest chunk
        longest = min(padded, memory.cache_shape.piece or padded)
        _read(model, memory, longest, [chunks[member] for member in members], drafter)


def cut_rows(chunks: Sequence[PromptChunk], row: int) -> list[PromptChunk]:
    """The chunks in rows of `row` tokens at most."""
    return [
        (request, first, min(first + row, end)) for request, start, end in chunks for first in range(start, end, row)
    ]


def row_length(lengths: Sequence[int]) -> int:
    """How many tokens the rows of a pass have: few for little padding, many because a row reads its past once."""
    quarter = sum(lengths) // (4 * len(lengths))
    return min(max(1 << quarter.bit_length(), SHORTEST_ROW), LONGEST_ROW)


def next_chunks(requests: Sequence[Request], budget: int, longest: int) -> list[PromptChunk]:
    """What is read next, in the order of the requests: `budget` tokens in all, at most `longest` of each."""
    chunks = []
    for request in requests:
        end = min(request.size - 1, request.done + min(budget, longest))
        if end > request.done:
            chunks.append((request, request.done, end))
            budget -= end - request.done
        if budget <= 0:
            break
    return chunks


def rows_split(model: Transformer, drafter: ModuleDrafter | None = None) -> bool:
    """Whether pages hold all that layers keep, so that one prompt may be several rows of a pass."""
    modules = [*model.blocks.modules()] if drafter is None else [*model.modules()]
    blocks = [block for block in modules if isinstance(block, Block)]
    return all(block.mixer is None or block.mixer.rows_split for block in blocks)


def row_arrays(memory: Memory, group: Sequence[PromptChunk], padded: int, count: int) -> tuple[NDArray[Any], ...]:
    """Tokens (and the one after each row), positions, slots, lengths and pages of `count` rows of `padded` tokens.

    Rows left over are dead: without length, in the padding's slot and pages.
    """
    shape = memory.cache_shape
    tokens = np.zeros((count, padded + 1), dtype=np.int64)
    pages = np.full((count, shape.table_width), PADDING_PAGE, dtype=np.int32)
    starts, lengths = np.zeros((2, count), dtype=np.int64)
    slots = np.full(count, memory.padding_slot, dtype=np.int64)
    for row, (request, start, end) in enumerate(group):
        assert request.slot is not None
        tokens[row, : end - start + 1] = request.span(start, end + 1)
        pages[row, : len(request.pages)] = request.pages
        starts[row], lengths[row], slots[row] = start, end - start, request.slot
    positions = np.minimum(starts[:, None] + np.arange(padded), shape.length - 1)  # padding may run over the end
    return tokens, positions, slots, lengths, pages


def _read(
    model: Transformer, memory: Memory, padded: int, group: Sequence[PromptChunk], drafter: ModuleDrafter | None
) -> None:
    tokens, positions, slots, lengths, table = row_arrays(memory, group, padded, len(group))
    reach = int(positions.max()) + 1
    table = np.ascontiguousarray(table[:, : memory.cache_shape.pages_for(reach)])
    sent = [to_device(values, memory.device) for values in (tokens, positions, slots, table, lengths)]
    tokens_BT, positions_BT, slots_B, pages_BR, lengths_B = sent
    states_BTD = model.hidden(
        tokens_BT[:, :-1],
        positions_BT,
        caches=memory.caches,
        slots=slots_B,
        pages=pages_BR,
        lengths=lengths_B,
        reach=reach,
    )
    score_rows(model, states_BTD, group)
    if drafter is not None:
        context = Context(positions_BT, slots_B=slots_B, lengths_B=lengths_B, reach=reach, pages_BR=pages_BR)
        drafter.read(states_BTD, tokens_BT[:, 1:], context)
