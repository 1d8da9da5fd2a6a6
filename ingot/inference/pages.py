"""The page pool: which requests hold which pages of the cache, and which prefix is in which page (prefix caching).

Any number of requests hold a page; it is free when none does. A page that is full of tokens has a *node*: a name
that stands for its tokens and all tokens before them,

    node = number of (node of the page before, tokens of this page),       beginning from a root

so a request that begins with the same tokens finds the pages of others from the root on, and holds them instead of computing
them again: the samples of one prompt, or the next turn of a conversation. Names are numbers given out once, not
hashes, so nothing is ever mistaken for something else. The root is salted with the version of the weights: `forget` gives a new
one, and nothing computed with old weights is found again.

A page gets its node when it is handed out, before it is filled: a second request with the same prompt sees that another is
about to fill it (`ready` is false) and waits for that instead of computing the same.

Pages that no request holds any more but that have a node keep their content until they are needed: least recently
released first. A request lets go of its last page first, so that a page never outlives the pages before it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ingot.model.mixers.cache import PADDING_PAGE

Key = tuple[int, tuple[int, ...]]


@dataclass
class _Node:
    number: int
    key: Key
    page: int
    ready: bool


@dataclass
class Match:
    """The known beginning of a prompt: its filled pages, and whether the next one is being filled."""

    pages: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    coming: bool = False


class PagePool:
    """`count` pages of `size` tokens; page 0 is for dead rows and is never handed out."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count - 1, size
        self._free: deque[int] = deque(page for page in range(count) if page != PADDING_PAGE)
        self._left: OrderedDict[int, None] = OrderedDict()  # pages with a node and no holder, oldest first
        self._holders = [0] * count
        self._node_of: dict[int, _Node] = {}
        self._find: dict[Key, _Node] = {}
        self._numbers = 0
        self.root = self._next()

    @property
    def available(self) -> int:
        """Pages that can be taken now."""
        return len(self._free) + len(self._left)

    @property
    def used(self) -> int:
        """Pages that requests hold."""
        return self.count - self.available

    def match(self, root: int, tokens: Sequence[int]) -> Match:
        """The longest beginning of `tokens`, in whole pages, that is known under `root`."""
        found, parent = Match(), root
        for start in range(0, len(tokens) - self.size + 1, self.size):
            node = self._find.get((parent, tuple(tokens[start : start + self.size])))
            if node is None:
                break
            if not node.ready:
                found.coming = True
                break
            found.pages.append(node.page)
            found.nodes.append(parent := node.number)
        return found

    def hold(self, pages: Iterable[int]) -> None:
        """One more holder for each of the pages."""
        for page in pages:
            self._holders[page] += 1
            self._left.pop(page, None)

    def take(self, count: int) -> list[int] | None:
        """New pages with one holder; None if there are not that many, and then nothing has happened."""
        if count > self.available:
            return None
        pages = []
        for _ in range(count):
            if self._free:
                page = self._free.popleft()
            else:
                page, _ = self._left.popitem(last=False)
                self._unname(page)
            self._holders[page] = 1
            pages.append(page)
        return pages

    def let_go(self, pages: Sequence[int]) -> None:
        """One holder less for each of a request's pages, which are given in the order of its tokens."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page] == 0:
                node = self._node_of.get(page)
                if node is not None and node.ready:
                    self._left[page] = None
                else:  # it will not be filled any more
                    self._unname(page)
                    self._free.append(page)

    def name(self, parent: int, tokens: Sequence[int], page: int, *, ready: bool) -> int:
        """Give the page its node, and the node's number. If another page has the same content, the page stays unnamed."""
        key = (parent, tuple(tokens))
        known = self._find.get(key)
        if known is not None:
            return known.number
        node = _Node(self._next(), key, page, ready)
        self._node_of[page] = self._find[key] = node
        return node.number

    def fill(self, pages: Iterable[int]) -> None:
        """These pages have been computed."""
        for page in pages:
            node = self._node_of.get(page)
            if node is not None:
                node.ready = True

    def forget(self) -> int:
        """All names end; holders stay. Returns the new root."""
        self._free.extend(self._left)
        self._left.clear()
        self._node_of.clear()
        self._find.clear()
        self.root = self._next()
        return self.root

    def _unname(self, page: int) -> None:
        node = self._node_of.pop(page, None)
        if node is not None:
            del self._find[node.key]

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
