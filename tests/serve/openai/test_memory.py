"""A server's memory under ever new schemas: its caches are bounded, and what they drop is given back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from ingot.inference.structure.constraint import compile_schema
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.vocabulary import vocabulary_of
from ingot.serve.openai.service import COMPILERS
from tests.serve.speaker import train_small_tokenizer

tokenizer = train_small_tokenizer()

def compile(number):
    names = [f"p{number}x{index}" for index in range(3000)]
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": index % 7 + 1}
              for index, name in enumerate(names)}, "additionalProperties": False}
    try:
        constraint = compile_schema(schema | ({"required": names} if number % 3 else {}), tokenizer)
    except StructureError:
        return
    state = constraint.start()
    for character in '{"':
        state = state.advance(tokenizer.encode(character)[0])
        state.mask()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

sizes, kept = [], []
with ThreadPoolExecutor(COMPILERS) as pool:
    for round in range(5):
        list(pool.map(compile, range(9 * round, 9 * round + 9)))
        sizes.append(resident())
        kept.append(vocabulary_of(tokenizer).grammars.bytes)
print(json.dumps([sizes, kept]))
"""


@pytest.mark.slow
def test_memory_stays_flat_under_large_schemas() -> None:
    """Forty-five schemas of 3,000 properties: after the first rounds have filled the cache, the process does not grow."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, check=True)
    sizes, kept = json.loads(done.stdout)
    assert max(kept) <= 64 << 20 and kept[-1] > 32 << 20
    grown = (sizes[-1] - sizes[1]) / 2**20
    assert grown < 40, [size >> 20 for size in sizes]
