"""Snapshots of recurrent states and rings, for models whose past is not only in pages.

A recurrent state or a window's ring stands for exactly the tokens that were read: pages alone do not bring it back. So at the
end of a prompt, and when a request ends, the slot is copied to a spare slot, named by the node of its last full page
(pages.py) and the tokens after that page. A request that begins with all these tokens copies the slot, and the page that was not
full, and goes on from there. A new snapshot replaces the least recently used one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

Name = tuple[int, tuple[int, ...]]


@dataclass
class Snapshot:
    """The past of `length` tokens: a spare slot, the whole pages before, and the page that was not full, if any."""

    slot: int
    pages: list[int]  # held by the snapshot
    nodes: list[int]
    length: int


class Snapshots:
    """Up to `len(slots)` snapshots in the given spare slots."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._spare = list(slots)
        self._kept: OrderedDict[Name, Snapshot] = OrderedDict()
        self._parents: Counter[int] = Counter()  # how many of them are named by each node

    @property
    def pages(self) -> int:
        """How many pages they hold, at most: some may be held by others too."""
        return sum(len(snapshot.pages) for snapshot in self._kept.values())

    def known(self, name: Name) -> bool:
        """Whether there is one of this name; it counts as used."""
        if name in self._kept:
            self._kept.move_to_end(name)
        return name in self._kept

    def find(self, root: int, tokens: Sequence[int], nodes: Sequence[int], page: int) -> Snapshot | None:
        """The longest snapshot that is a beginning of `tokens`, whose first whole pages have the nodes `nodes`."""
        for count in range(len(nodes), -1, -1):
            parent, rest = (nodes[count - 1] if count else root), tokens[count * page : (count + 1) * page]
            if parent not in self._parents:
                continue
            for length in range(min(len(rest), page - 1), -1, -1):
                name = (parent, tuple(rest[:length]))
                if name in self._kept:
                    self._kept.move_to_end(name)
                    return self._kept[name]
        return None

    def free_slot(self) -> tuple[int, list[int]] | None:
        """A spare slot, and the pages to let go of that another snapshot held for it; None if there are no slots at all."""
        if self._spare:
            return self._spare.pop(), []
        pages = self.drop_oldest()
        return None if pages is None else (self._spare.pop(), pages)

    def give_back(self, slot: int) -> None:
        """The slot was not used after all."""
        self._spare.append(slot)

    def keep(self, name: Name, snapshot: Snapshot) -> None:
        """Remember a snapshot whose slot came from `free_slot`."""
        self._kept[name] = snapshot
        self._parents[name[0]] += 1

    def forget(self) -> list[int]:
        """All of them end; returns the pages they held."""
        pages = [page for snapshot in self._kept.values() for page in reversed(snapshot.pages)]
        self._spare += [snapshot.slot for snapshot in self._kept.values()]
        self._kept.clear()
        self._parents.clear()
        return pages

    def drop_oldest(self) -> list[int] | None:
        """Give up the one used longest ago, because pages are short; None if there is none."""
        if not self._kept:
            return None
        name, oldest = self._kept.popitem(last=False)
        self._parents[name[0]] -= 1
        if not self._parents[name[0]]:
            del self._parents[name[0]]
        self._spare.append(oldest.slot)
        return oldest.pages
