"""The tokens of a vocabulary as a tree of bytes, and the mask of those that an automaton allows.

Tokens that begin alike share the path to where they differ. The tree lies in arrays in preorder: a node's subtree is the
nodes up to `skip`. One pass over them, with the automaton's state of each depth on a stack, gives the mask: a byte that
is not allowed rules out its whole subtree at once, and a state that is kept by all characters of a subtree, as that
within a string mostly is, lets all of it pass. The walk is a kernel; it stops where it needs a row of the automaton's
table that was never asked for, and goes on when that is filled.

Special tokens and those without bytes are in no mask: they are not text.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import kernel
from ingot.inference.structure.automaton import DEAD, UNKNOWN, Automaton
from ingot.tokens.tokenizer import Tokenizer

Ints = NDArray[np.int32]
Words = NDArray[np.uint64]
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
MASK_BYTES = 64 << 20  # masks kept for a vocabulary, all its constraints together


class Vocabulary:
    """A tokenizer's tokens as bytes. `lock` guards it and all automata that run over it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        special = set(tokenizer.special.values())
        self.size = tokenizer.vocabulary_size
        self.bytes_of = [b"" if id in special else tokenizer.decode_bytes((id,)) for id in range(self.size)]
        ids = sorted((id for id in range(self.size) if self.bytes_of[id]), key=self.bytes_of.__getitem__)
        pieces = [self.bytes_of[id] for id in ids]
        self.longest = max(map(len, pieces), default=0)
        self.single_bytes = sum({1 << piece[0] for piece in pieces if len(piece) == 1})
        self.characters = _characters(pieces)
        self.ids = np.array(ids, dtype=np.int32)
        data = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        offsets = np.cumsum([0, *map(len, pieces)]).astype(np.int64)
        self.tree = build_tree(data, offsets)
        self.lock = threading.RLock()
        self._masks: OrderedDict[tuple[int, int], NDArray[np.uint8]] = OrderedDict()
        self._kept_at_most = max(16, MASK_BYTES // max(1, self.size))

    def mask(self, automaton: Automaton, state: int) -> NDArray[np.uint8]:
        """1 for each token that may follow in `state`. Read-only."""
        key = (automaton.serial, state)
        mask = self._masks.get(key)
        if mask is not None:
            self._masks.move_to_end(key)
            return mask
        mask = self._masks[key] = self._walk(automaton, state)
        if len(self._masks) > self._kept_at_most:
            self._masks.popitem(last=False)
        return mask

    def _walk(self, automaton: Automaton, state: int) -> NDArray[np.uint8]:
        mask = np.zeros(self.size, dtype=np.uint8)
        states = np.zeros(self.longest + 1, dtype=np.int32)
        states[0] = state
        position = 0
        while True:
            position = walk_tree(*self.tree, self.ids, automaton.next, automaton.keeps, states, position, mask)
            if position < 0:
                break
            automaton.fill_row(int(states[self.tree[1][position] - 1]))
        mask.flags.writeable = False
        return mask


def _characters(pieces: list[bytes]) -> frozenset[int]:
    """The code points that are a token, in a vocabulary of whole characters; none where tokens are bytes."""
    found = set()
    for piece in pieces:
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            return frozenset()
        if len(text) == 1:
            found.add(ord(text))
    return frozenset(found)


@kernel
def build_tree(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[Ints, Ints, Ints, Ints, Words]:
    """The tree of sorted tokens.

    Of each node its byte, depth and skip; the number of tokens before it (with one entry more, for the end); and its
    `character_sets`.
    """
    most = data.shape[0]
    byte = np.empty(most, dtype=np.int32)
    depth = np.empty(most, dtype=np.int32)
    skip = np.empty(most, dtype=np.int32)
    before = np.empty(most + 1, dtype=np.int32)
    path = np.empty(most + 1, dtype=np.int32)  # the node at each depth above the current one
    nodes = 0
    height = 0
    for token in range(offsets.shape[0] - 1):
        start, length = offsets[token], offsets[token + 1] - offsets[token]
        shared = 0
        while shared < height and shared < length and byte[path[shared]] == data[start + shared]:
            shared += 1
        for level in range(shared, height):
            skip[path[level]] = nodes
        for level in range(shared, length):
            byte[nodes], depth[nodes], before[nodes] = data[start + level], level + 1, token
            path[level] = nodes
            nodes += 1
        height = length
    for level in range(height):
        skip[path[level]] = nodes
    before[nodes] = offsets.shape[0] - 1
    inside = character_sets(byte[:nodes], depth, skip)
    return byte[:nodes].copy(), depth[:nodes].copy(), skip[:nodes].copy(), before[: nodes + 1].copy(), inside


@kernel
def character_sets(byte: Ints, depth: Ints, skip: Ints) -> Words:
    """Of each node the first bytes of the characters in it and below it, as four words of 64 bits.

    All bits are set for a node that does not begin a character, and above bytes that are no UTF-8.
    """
    nodes = byte.shape[0]
    inside = np.zeros((nodes, 4), dtype=np.uint64)
    begins = np.zeros(nodes, dtype=np.uint8)
    missing = np.zeros(
        nodes + 1, dtype=np.int32
    )  # at each depth of the path, bytes that its last character still lacks
    lead = np.zeros(nodes + 1, dtype=np.int32)  # and, where only its first byte is there, that byte
    for node in range(nodes):
        value, level = byte[node], depth[node]
        lacks, first = missing[level - 1], lead[level - 1]
        missing[level], lead[level] = max(0, lacks - 1), 0
        valid = 0x80 <= value < 0xC0
        if lacks == 0:
            begins[node] = 1
            valid = value < 0x80 or 0xC2 <= value <= 0xF4
            missing[level] = 0 if value < 0xC0 else 1 if value < 0xE0 else 2 if value < 0xF0 else 3
            lead[level] = value
            inside[node, value >> 6] = np.uint64(1) << np.uint64(value & 63)
        elif first == 0xE0:
            valid = 0xA0 <= value < 0xC0
        elif first == 0xED:
            valid = 0x80 <= value < 0xA0
        elif first == 0xF0:
            valid = 0x90 <= value < 0xC0
        elif first == 0xF4:
            valid = 0x80 <= value < 0x90
        for word in range(4):
            if not valid:
                inside[node, word] = ALL_BITS
    for node in range(nodes - 1, -1, -1):
        child = node + 1
        while child < skip[node]:
            for word in range(4):
                inside[node, word] |= inside[child, word]
            child = skip[child]
    for node in range(nodes):
        for word in range(4):
            if not begins[node]:
                inside[node, word] = ALL_BITS
    return inside


@kernel
def walk_tree(
    byte: Ints,
    depth: Ints,
    skip: Ints,
    before: Ints,
    inside: Words,
    ids: Ints,
    table: Ints,
    keeps: Words,
    states: Ints,
    position: int,
    mask: NDArray[np.uint8],
) -> int:
    """Mark the allowed tokens from node `position` on; the node at which the table has a gap, or -1 at the end."""
    while position < byte.shape[0]:
        level = depth[position]
        parent = states[level - 1]
        if (
            inside[position, 0] & ~keeps[parent, 0] == 0
            and inside[position, 1] & ~keeps[parent, 1] == 0
            and inside[position, 2] & ~keeps[parent, 2] == 0
            and inside[position, 3] & ~keeps[parent, 3] == 0
        ):
            following = skip[position]
        else:
            state = table[parent, byte[position]]
            if state == UNKNOWN:
                return position
            if state == DEAD:
                position = skip[position]
                continue
            states[level] = state
            following = position + 1
        for token in range(before[position], before[following]):
            mask[ids[token]] = 1
        position = following
    return -1


_vocabularies: weakref.WeakKeyDictionary[Tokenizer, Vocabulary] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, made once."""
    with _lock:
        if tokenizer not in _vocabularies:
            _vocabularies[tokenizer] = Vocabulary(tokenizer)
        return _vocabularies[tokenizer]
