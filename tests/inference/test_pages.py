"""Pages and snapshots against a model of what they promise: which request holds what, what is found, and nothing gets lost."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingot.inference.memory import Memory, size_caches
from ingot.inference.pages import PagePool
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.snapshots import Snapshot, Snapshots
from ingot.model.transformer import Transformer
from tests.inference.conftest import tiny_model
from tests.inference.test_engine_mixers import make_model, short_mini

SIZE = 2
TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)  # two tokens: beginnings are often the same


class PoolMachine(RuleBasedStateMachine):
    """Holders take pages for a text, fill them one by one, and let go; `content` is what a device would hold."""

    @initialize(count=st.integers(2, 8))
    def begin(self, count: int) -> None:
        self.pool = PagePool(1 + count, SIZE)
        self.content: dict[int, tuple[int, ...]] = {}  # the text up to and with the page, once it is computed
        self.holders: list[tuple[list[int], list[int], int]] = []  # pages, text, how many pages are computed

    @rule(text=TEXTS)
    def enter(self, text: list[int]) -> None:
        pool, pages_for = self.pool, -(-len(text) // SIZE)
        match = pool.match(pool.root, text)
        for place, page in enumerate(match.pages):  # what is found is there, and is what was asked for
            assert self.content[page] == tuple(text[: (place + 1) * SIZE])
        if match.coming:
            filling = [page for pages, _, done in self.holders for page in pages[done:]]
            assert any(not node.ready and node.page in filling for node in pool._node_of.values())
            return
        pool.hold(match.pages)
        before = pool.available
        pages = pool.take(pages_for - len(match.pages))
        if pages is None:
            assert before < pages_for - len(match.pages)
            pool.let_go(match.pages)
            return
        nodes, pages = [pool.root, *match.nodes], match.pages + pages
        for place in range(len(match.pages), len(text) // SIZE):
            nodes.append(pool.name(nodes[-1], text[place * SIZE : (place + 1) * SIZE], pages[place], ready=False))
        for page in pages[len(match.pages) :]:
            self.content.pop(page, None)  # it will be written over
        self.holders.append((pages, text, len(match.pages)))

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 99))
    def fill(self, which: int) -> None:
        """The next page of a holder is computed."""
        place = which % len(self.holders)
        pages, text, done = self.holders[place]
        if done < len(pages):
            self.content[pages[done]] = tuple(text[: (done + 1) * SIZE])
            self.pool.fill([pages[done]])
            self.holders[place] = (pages, text, done + 1)

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        self.pool.let_go(self.holders.pop(which % len(self.holders))[0])

    @rule()
    def forget(self) -> None:
        old = self.pool.root
        assert self.pool.forget() == self.pool.root != old
        for text in ([0] * SIZE, [1] * SIZE, [0, 1], [1, 0]):
            for root in (old, self.pool.root):
                assert not self.pool.match(root, text).pages and not self.pool.match(root, text).coming

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        holders = Counter(page for pages, _, _ in self.holders for page in pages)
        assert [holders[page] for page in range(pool.count + 1)] == pool._holders
        assert sorted([*pool._free, *pool._left, *holders]) == list(range(1, pool.count + 1))
        assert pool.used == len(holders) and pool.available == pool.count - len(holders)
        assert all(pool._node_of[page].ready for page in pool._left)
        assert {node.key for node in pool._node_of.values()} == set(pool._find)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for pages, _, _ in self.holders:
                self.pool.let_go(pages)
            assert self.pool.used == 0


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_page_left_first_goes_first() -> None:
    """And of one text the last page, so that a beginning is found for as long as possible."""
    pool = PagePool(1 + 4, SIZE)
    older, newer = pool.take(2), pool.take(2)
    assert older is not None and newer is not None and pool.take(1) is None
    for pages, token in ((older, 0), (newer, 1)):
        parent = pool.root
        for page in pages:
            parent = pool.name(parent, [token] * SIZE, page, ready=True)
    pool.let_go(older)
    pool.let_go(newer)
    found = []
    for _ in range(4):
        assert pool.take(1) is not None
        found.append([len(pool.match(pool.root, [token] * 4).pages) for token in (0, 1)])
    assert found == [[1, 2], [0, 2], [0, 1], [0, 0]]


def test_the_longest_snapshot_is_found_and_the_one_unused_for_longest_goes() -> None:
    kept, root, node = Snapshots(range(10, 13)), 1, 2
    for name in ((root, (7,)), (root, (7, 8)), (node, ())):
        place = kept.free_slot()
        assert place is not None and place[1] == []
        kept.keep(name, Snapshot(place[0], [place[0]], [], len(name[1])))
    for tokens, nodes, expected in (([7, 8, 9], [], 2), ([7, 9], [], 1), ([9], [], None), ([1, 1, 1, 1, 5], [node], 0)):
        found = kept.find(root, tokens, nodes, 4)
        assert (None if found is None else found.length) == expected
    dropped = kept.free_slot()  # that of (7, 8) was found before the other two
    assert dropped is not None and dropped[1] == [dropped[0]] and not kept.known((root, (7, 8)))
    kept.give_back(dropped[0])
    assert len(kept.forget()) == 2 and kept.find(root, [7, 8, 9], [node], 4) is None
    assert sorted(kept._spare) == [10, 11, 12] and not kept._parents
    assert Snapshots(()).free_slot() is None


def memory_of(model: Transformer, slots: int, pages: int) -> Memory:
    room = size_caches(model, slots, 64, piece=64)
    with torch.inference_mode():
        memory = Memory(model, slots, room)
    memory.pool = PagePool(1 + pages, room.page)
    return memory


def request_of(prompt: list[int]) -> Request:
    return Request(prompt, Sampling(), 9)


def test_a_snapshot_that_makes_room_for_its_own_reader_is_read_all_the_same() -> None:
    """The pool is so full that the snapshot a request goes on from must be given up for the request's pages."""
    memory = memory_of(make_model(short_mini("qwen3-next-80b-a3b-mini")), 2, 4)
    first = request_of([1] * 21)
    assert memory.enter(first, spare=0) == "in"
    memory.filled(first, 20)
    with torch.inference_mode():
        for cache in memory._all_caches:
            for tensor in cache.tensors():
                tensor[:] = torch.arange(len(tensor)).view(-1, *[1] * (tensor.dim() - 1))
        state = memory._all_caches[0].tensors()[0]
        assert first.slot is not None and int(state[first.slot].flatten()[0]) == first.slot
        memory.snapshot(first, 20)
        mark = int(state[first.slot].flatten()[0])
        memory.leave(first)
        second = request_of([1] * 20 + [2] * 43)  # four pages: all there are
        assert memory.enter(second, spare=0) == "in"
        memory.flush()
    assert second.done == second.shared_tokens == 20 and memory.pool.available == 0
    assert memory.snapshots.find(memory.pool.root, [1] * 20, second.nodes, 16) is None  # it had to go
    assert second.slot is not None and int(state[second.slot].flatten()[0]) == mark


@pytest.mark.parametrize("gone", ["leave", "forget"])
def test_who_waits_for_a_beginning_does_not_wait_for_one_who_is_gone(gone: str) -> None:
    memory = memory_of(tiny_model(), 3, 12)
    reader, follower = request_of([1] * 40), request_of([1] * 40)
    assert memory.enter(reader, spare=0) == "in"
    assert memory.enter(follower, spare=0) == "coming"
    if gone == "leave":
        memory.leave(reader)
    else:
        memory.forget([reader])
    assert memory.enter(follower, spare=0) == "in" and follower.done == 0
