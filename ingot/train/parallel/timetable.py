"""The schedule of a pipeline: 1F1B (arXiv 2006.09503) and interleaved 1F1B (Megatron-LM, arXiv 2104.04473).

A model is cut into S = P·V consecutive stages; rank r of P holds the V stages r, r + P, r + 2P, … A step has M micro-batches,
each of which goes forward through all stages and backward through all of them again. A rank first goes forward only (it fills
the pipeline), then alternates one forward, one backward, so that it never keeps the activations of more passes than it must:

    passes before the first backward      P − r − 1   with one stage per rank, else   2(P − r − 1) + (V − 1)P

With V > 1 micro-batches go in groups of P: P of them through a rank's first stage, then the same through its second, and so on; a
last group that is not full is one with the missing ones left out. With equal times for all passes the share of idle slots is

    bubble = (P − 1) / (M·V + P − 1)      M a multiple of P, or V = 1

The slots that `timetable` gives say in which order ranks exchange what they made, the same on all of them, so no two
ranks wait for each other. They are not a clock: a rank goes on as soon as it has what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """One pass of a micro-batch through a stage."""

    forward: bool
    stage: int
    micro: int

    def needs(self, stages: int) -> Action | None:
        """The pass whose result this one takes; none for the first one of a micro-batch."""
        if self.forward:
            return Action(True, self.stage - 1, self.micro) if self.stage > 0 else None
        if self.stage == stages - 1:
            return Action(True, self.stage, self.micro)
        return Action(False, self.stage + 1, self.micro)

    def feeds(self, stages: int) -> Action | None:
        """The pass of another stage that takes this one's result."""
        after = self.stage + 1 if self.forward else self.stage - 1
        return Action(self.forward, after, self.micro) if 0 <= after < stages else None


def rank_order(rank: int, ranks: int, per_rank: int, micros: int) -> list[Action]:
    """The passes of a rank, in order."""
    padded = -(-micros // ranks) * ranks  # whole groups; what does not exist is left out below
    total, first = padded * per_rank, ranks - rank - 1
    before = min(first if per_rank == 1 else 2 * first + (per_rank - 1) * ranks, total)

    def action(forward: bool, number: int) -> Action:
        part = number // ranks % per_rank
        local = part if forward else per_rank - 1 - part
        return Action(forward, local * ranks + rank, number // (ranks * per_rank) * ranks + number % ranks)

    order = [action(True, number) for number in range(before)]
    for number in range(before, total):
        order += [action(True, number), action(False, number - before)]
    order += [action(False, number) for number in range(total - before, total)]
    return [each for each in order if each.micro < micros]


def timetable(ranks: int, per_rank: int, micros: int) -> list[list[Action | None]]:
    """By slot: what each rank does in it. Every pass comes in a later slot than the one whose result it takes."""
    orders = [rank_order(rank, ranks, per_rank, micros) for rank in range(ranks)]
    stages, done, slots = ranks * per_rank, set[Action](), list[list[Action | None]]()
    counts = [0] * ranks  # passes that each rank has done
    while any(count < len(order) for count, order in zip(counts, orders, strict=True)):
        slot: list[Action | None] = []
        for count, order in zip(counts, orders, strict=True):
            action = order[count] if count < len(order) else None
            ready = action is not None and (action.needs(stages) is None or action.needs(stages) in done)
            slot.append(action if ready else None)
        assert any(slot), "the orders of the ranks wait for each other"
        counts = [count + (action is not None) for count, action in zip(counts, slot, strict=True)]
        done |= {action for action in slot if action is not None}
        slots.append(slot)
    return slots


def bubble(table: list[list[Action | None]]) -> float:
    """The share of slots in which a rank has nothing to do, over all ranks."""
    idle = sum(action is None for slot in table for action in slot)
    return idle / sum(len(slot) for slot in table)
