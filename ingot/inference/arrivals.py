"""Requests that wait for a slot: first come, first served; one that comes back, or follows a turn, keeps its position."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter

from ingot.inference.memory import Memory
from ingot.inference.request import Request


class Arrivals(deque[Request]):
    """In the order of their numbers."""

    def add(self, request: Request) -> None:
        """Queue the request in the order of arrival; before others of its number, since it was here before."""
        self.insert(bisect_left(self, request.number, key=attrgetter("number")), request)

    def admit(self, memory: Memory, spare: int, reading: list[Request]) -> bool:
        """Move those to `reading` that get a slot and pages now; `spare` pages are left for others to grow.

        A request whose prefix another is about to read waits for that (then this is true), and does not hold up those behind
        it; one for which there are too few pages does.
        """
        stay, coming = list[Request](), False
        try:
            while self and memory.free_slots:
                request = self.popleft()
                stay.append(request)
                entry = memory.enter(request, spare)
                coming |= entry == "coming"
                if entry == "full":
                    break
                if entry == "in":
                    reading.append(stay.pop())
        finally:  # also after Ctrl-C
            self.extendleft(reversed(stay))
        return coming
