"""Chooses the sizes of the programs of sparse_attention_kernel.py; its gradients choose their own in the same terms."""

from __future__ import annotations

from typing import NamedTuple


class SparseTile(NamedTuple):
    """Sizes of one program."""

    block_h: int  # heads of the query
    block_n: int  # entries gathered at a time
    warps: int
    stages: int  # of the pipeline: an entry's index is read two stages before it is used


def choose_forward_tile(heads: int, bytes_per_number: int) -> SparseTile:
    """For entries of 512 + 64 numbers on a multiprocessor with 227 KB of shared memory and 256 KB of registers.

    In 16 bits a head's query takes 1.1 KB of shared memory, an entry 1.1 KB in each of two buffers, and a head's mixture 2 KB of
    registers: 64 heads and 64 entries are 72 + 144 KB and 128 KB. For the scores every warp (group) reads the queries from shared
    memory once a tile, which takes longer than the products: tiles of 64 entries read them half as often as tiles of 32.
    """
    if bytes_per_number == 4:
        return SparseTile(16, 16, warps=4, stages=2)
    if heads <= 16:
        return SparseTile(16, 32, warps=4, stages=5)
    return SparseTile(32, 64, warps=8, stages=5) if heads <= 32 else SparseTile(64, 64, warps=8, stages=3)


def choose_page_tile(heads: int, bytes_per_number: int) -> SparseTile:
    """For decoding, where programs share a query's entries: shorter tiles divide them more evenly."""
    tile = choose_forward_tile(heads, bytes_per_number)
    return tile._replace(block_n=32, stages=5) if tile.block_n > 32 else tile
