"""Speed of structured output: ours (llguidance behind a cache) against llguidance alone, xgrammar and outlines_core.

For each JSON schema and vocabulary, three numbers in CPU milliseconds:

    compile     from the schema's text to something that can give masks, nothing remembered from before
    first       a token's mask and step, along a document, in the first request of the schema
    again       the same for the same document in the next request, when what the first worked out may be remembered

All walk the same documents, cut into the same tokens (the longest that fits). The peers write a mask of bits, ours is an
array of bytes; turning either into a tensor is not counted. `ratio` is the peer's time over ours: above 1 we are faster.
Vocabularies: SmolLM2 (49,152 tokens) and o200k (199,998), from the folder of real data beside the repository.

    python benchmarks/structure.py [--device cpu] [--quick]
"""

from __future__ import annotations

import argparse
import base64
import gzip
import importlib
import importlib.util
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from ingot.inference.structure.constraint import Constraint, State, compile_schema
from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER
from ingot.tokens.tokenizer import Tokenizer

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "tokenizers"
TEXT = {"type": "string"}

SCHEMAS: dict[str, tuple[Any, Any]] = {
    "ten properties": (
        {
            "type": "object",
            "properties": {
                "name": TEXT,
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "email": {"type": "string", "pattern": "^[a-z.]{1,20}@[a-z]{1,20}[.](com|org)$"},
                "height": {"type": "number"},
                "member": {"type": "boolean"},
                "plan": {"enum": ["free", "basic", "premium"]},
                "tags": {"type": "array", "items": TEXT, "maxItems": 5},
                "address": {
                    "type": "object",
                    "properties": {"street": TEXT, "city": TEXT, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
                    "required": ["street", "city", "zip"],
                    "additionalProperties": False,
                },
                "manager": {"anyOf": [TEXT, {"type": "null"}]},
                "note": TEXT,
            },
            "required": ["name", "age", "email", "height", "member", "plan", "tags", "address", "manager", "note"],
            "additionalProperties": False,
        },
        {
            "name": "Ada Lovelace",
            "age": 36,
            "email": "ada@engine.org",
            "height": 1.65,
            "member": True,
            "plan": "premium",
            "tags": ["mathematics", "poetry"],
            "address": {"street": "12 St James's Square", "city": "London", "zip": "01852"},
            "manager": None,
            "note": "The Analytical Engine weaves algebraical patterns just as the Jacquard loom weaves flowers and leaves.",
        },
    ),
    "recursive tree": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                    "required": ["name", "children"],
                    "additionalProperties": False,
                }
            },
        },
        {
            "name": "animals",
            "children": [
                {"name": "birds", "children": [{"name": "wren", "children": []}, {"name": "owl", "children": []}]},
                {"name": "fish", "children": []},
            ],
        },
    ),
    "bounded string": (
        {
            "type": "object",
            "properties": {"summary": {"type": "string", "minLength": 10, "maxLength": 2000}},
            "required": ["summary"],
            "additionalProperties": False,
        },
        {"summary": "A long summary in plain words, with a few numbers such as 1815 and 36. " * 8},
    ),
}


def _end(tokenizer: Tokenizer) -> int:
    return tokenizer.special["<|endoftext|>"]


class Peer(Protocol):
    """Something that compiles schemas for a vocabulary and walks documents."""

    def compile(self, schema: Any) -> Any: ...
    def walk(self, compiled: Any, tokens: list[int]) -> None: ...


class Ours:
    """llguidance behind Ingot's cache. A schema that differs in an annotation is compiled anew."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.count = tokenizer, 0

    def compile(self, schema: Any) -> Constraint:
        self.count += 1
        return compile_schema({**schema, "$comment": str(self.count)}, self.tokenizer)

    def walk(self, compiled: Constraint, tokens: list[int]) -> None:
        state: State = compiled.start()
        for token in tokens:
            state.mask()
            state = state.advance(token)
        assert state.complete


class Llguidance:
    """Masks in Rust, from an Earley parser over derivatives; nothing is remembered between requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.library = importlib.import_module("llguidance")
        self.fill = importlib.import_module("llguidance.numpy").fill_next_token_bitmask

        class Wrapped:
            def __init__(self) -> None:
                self.eos_token_id, self.bos_token_id = _end(tokenizer), None
                self.tokens = [tokenizer.decode_bytes((id,)) for id in range(tokenizer.vocabulary_size)]
                self.special_token_ids = sorted(tokenizer.special.values())

            def __call__(self, text: bytes | str) -> list[int]:
                return tokenizer.encode(text.decode() if isinstance(text, bytes) else text)

        self.tokenizer = self.library.LLTokenizer(self.library.TokenizerWrapper(Wrapped()))
        self.mask = np.zeros((1, (tokenizer.vocabulary_size + 31) // 32), dtype=np.int32)

    def compile(self, schema: Any) -> Any:
        matching = self.library.LLMatcher
        form = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
        matcher = matching(self.tokenizer, matching.grammar_from_json_schema(json.dumps(schema), overrides=form))
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def walk(self, compiled: Any, tokens: list[int]) -> None:
        matcher = compiled.deep_copy()
        for token in tokens:
            self.fill(matcher, self.mask)
            matcher.consume_token(token)
        assert matcher.is_accepting(), matcher.get_error()


class Xgrammar:
    """Masks in C++, from a pushdown automaton; most of the mask of each state is worked out when compiling."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.library = importlib.import_module("xgrammar")
        tokens = [tokenizer.decode_bytes((id,)) for id in range(tokenizer.vocabulary_size)]
        information = self.library.TokenizerInfo(tokens, self.library.VocabType.RAW, stop_token_ids=[_end(tokenizer)])
        self.compiler = self.library.GrammarCompiler(information, cache_enabled=False, max_threads=1)
        self.mask = np.zeros((1, (tokenizer.vocabulary_size + 31) // 32), dtype=np.int32)

    def compile(self, schema: Any) -> Any:
        return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=False, separators=(", ", ": "))

    def walk(self, compiled: Any, tokens: list[int]) -> None:
        matcher = self.library.GrammarMatcher(compiled, terminate_without_stop_token=True)
        for token in tokens:
            matcher.fill_next_token_bitmask(self.mask)
            assert matcher.accept_token(token)
        assert matcher.is_terminated()


class OutlinesCore:
    """An index of every state and token in Rust, worked out when compiling; without recursion."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.library = importlib.import_module("outlines_core")
        tokens: dict[bytes, list[int]] = {}
        for id in set(range(tokenizer.vocabulary_size)) - set(tokenizer.special.values()):
            if tokenizer.decode_bytes((id,)):
                tokens.setdefault(tokenizer.decode_bytes((id,)), []).append(id)
        self.vocabulary = self.library.Vocabulary(_end(tokenizer), tokens)
        self.mask = np.zeros((tokenizer.vocabulary_size + 31) // 32, dtype=np.int32)

    def compile(self, schema: Any) -> Any:
        pattern = self.library.json_schema.build_regex_from_schema(json.dumps(schema), "[ ]?")
        return self.library.Index(pattern, self.vocabulary)

    def walk(self, compiled: Any, tokens: list[int]) -> None:
        guide = self.library.Guide(compiled)
        for token in tokens:
            guide.write_mask_into(self.mask.ctypes.data, self.mask.size, self.mask.itemsize)
            guide.advance(token, return_tokens=False)


PEERS: dict[str, Callable[[Tokenizer], Peer]] = {
    "llguidance": Llguidance,
    "xgrammar": Xgrammar,
    "outlines_core": OutlinesCore,
}
TOO_SLOW = {("outlines_core", "recursive tree"), ("outlines_core", "bounded string")}  # no recursion; minutes


def vocabularies(quick: bool) -> dict[str, Tokenizer]:
    """SmolLM2's tokenizer, and one of the tokens of o200k, which is only ever decoded."""
    files = {"tokenizer.json": gzip.decompress((DATA / "smollm2_tokenizer.json.gz").read_bytes())}
    found = {"SmolLM2": Tokenizer.from_files(files, "SmolLM2")}
    if not quick:
        lines = gzip.decompress((DATA / "o200k_base.tiktoken.gz").read_bytes()).splitlines()
        character = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
        vocabulary = {
            "".join(character[byte] for byte in base64.b64decode(piece)): int(rank)
            for piece, rank in (line.split() for line in lines)
        }
        backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(["<|endoftext|>"])
        found["o200k"] = Tokenizer(backend, None)
    return found


def cut(text: bytes, tokenizer: Tokenizer) -> list[int]:
    """The text as tokens, each the longest that fits."""
    special = set(tokenizer.special.values())
    pieces = {tokenizer.decode_bytes((id,)): id for id in range(tokenizer.vocabulary_size) if id not in special}
    tokens, at = [], 0
    while at < len(text):
        length = next(n for n in range(20, 0, -1) if text[at : at + n] in pieces)
        tokens.append(pieces[text[at : at + length]])
        at += length
    return tokens


def measure(peer: Peer, schema: Any, tokens: list[int], rounds: int) -> dict[str, float]:
    """CPU milliseconds of compiling, and of a token in the first and in the next request; the best of several rounds."""
    best = dict.fromkeys(("compile", "first", "again"), float("inf"))
    for _ in range(rounds):
        moments = [time.process_time()]
        compiled = peer.compile(schema)
        moments.append(time.process_time())
        for _ in range(2):
            peer.walk(compiled, tokens)
            moments.append(time.process_time())
        spent = [1e3 * (end - start) for start, end in itertools.pairwise(moments)]
        found = {"compile": spent[0], "first": spent[1] / len(tokens), "again": spent[2] / len(tokens)}
        best = {key: min(best[key], found[key]) for key in best}
        if spent[0] > 1e3:  # a second to compile is measured well enough by one round
            break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Structured output: compile and mask times beside other libraries.")
    parser.add_argument("--device", choices=["cpu"], default="cpu", help="masks are made on the CPU")
    parser.add_argument("--quick", action="store_true", help="one vocabulary, fewer rounds: within a minute")
    options = parser.parse_args()
    rounds = 2 if options.quick else 5
    installed = [name for name in PEERS if importlib.util.find_spec(name)]
    results = []
    print(f"{'CPU milliseconds':48}{'ours':>9}" + "".join(f"{name:>15}" for name in installed))
    for vocabulary, tokenizer in vocabularies(options.quick).items():
        ours = Ours(tokenizer)
        compile_schema({"const": "warm"}, tokenizer)  # the vocabulary's tree, and kernels on their first use ever
        peers = {name: PEERS[name](tokenizer) for name in installed}
        for name, (schema, document) in SCHEMAS.items():
            tokens = cut(json.dumps(document).encode(), tokenizer)
            times = {"ours": measure(ours, schema, tokens, rounds)}
            for peer in installed:
                if (peer, name) not in TOO_SLOW:
                    times[peer] = measure(peers[peer], schema, tokens, rounds)
            for what in ("compile", "first", "again"):
                cells = "".join(f"{times[peer][what]:15.4f}" if peer in times else f"{'':15}" for peer in installed)
                print(f"{vocabulary}, {name}: {what:20}".ljust(48) + f"{times['ours'][what]:9.4f}" + cells, flush=True)
                results += [
                    {
                        "case": f"{vocabulary}, {name}: {what}, peer: {peer}",
                        "ours": round(times["ours"][what], 4),
                        "peer": round(times[peer][what], 4),
                        "ratio": round(times[peer][what] / times["ours"][what], 2),
                        "unit": "CPU ms",
                    }
                    for peer in installed
                    if peer in times
                ]
    print(json.dumps({"benchmark": "structure", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
