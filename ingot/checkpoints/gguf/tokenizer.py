"""Converts the tokenizer in a GGUF file to the files of a Hugging Face tokenizer.

`tokenizer.ggml.model: gpt2` is a byte-level BPE: tokens in the order of their ids, merges in order of rank, a type per
token, and in `tokenizer.ggml.pre` the *name* of a rule that cuts text before merging, which is not in the file. `RULES`
has those rules as the models' own tokenizer.json files spell them.

Checked against transformers and against the tokenizer of SmolLM2 by tests/checkpoints/gguf/test_tokenizer.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.tokens.tokenizer import GENERATION_CONFIG, TEMPLATE_FILE, TOKENIZER_CONFIG, TOKENIZER_FILE
from ingot.workspace.errors import ArtifactError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # types of tokens
NO_VOCABULARY = "no_vocab"  # the kind of a file without a tokenizer
ENDS = ("eos", "eot", "eom")  # the tokens at which llama.cpp stops
HUGGINGFACE = "tokenizer.huggingface.json"  # the tokenizer.json itself, which few files hold
NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
BLANKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Rule:
    """How text is cut: `digits` alone first, then at `pattern`, or by GPT-2's own rule without one."""

    pattern: str | None = None
    digits: bool = False
    normalised: bool = False  # to Unicode's composed form, NFC
    whole_words: bool = False  # a word that is a token stays whole, whatever the merges say
    opening: bool = False  # every text begins with the bos token, unless the file says otherwise

    def pre_tokenizer(self) -> dict[str, Any]:
        """The rule for the `tokenizers` library."""
        steps: list[dict[str, Any]] = [{"type": "Digits", "individual_digits": True}] if self.digits else []
        if self.pattern is not None:
            steps.append({"type": "Split", "pattern": {"Regex": self.pattern}, "behavior": "Isolated", "invert": False})
        bytes_ = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": self.pattern is None,
        }
        return {"type": "Sequence", "pretokenizers": [*steps, bytes_]}


RULES = {
    "gpt-2": Rule(),
    "smollm": Rule(digits=True),
    "starcoder": Rule(digits=True),
    "qwen2": Rule(pattern=LETTERS + r"\p{N}" + BLANKS, normalised=True),
    "llama-bpe": Rule(pattern=LETTERS + r"\p{N}{1,3}" + BLANKS, whole_words=True, opening=True),
    "smaug-bpe": Rule(pattern=LETTERS + r"\p{N}{1,3}" + BLANKS),
}


def tokenizer_files(metadata: Mapping[str, Any], place: str) -> dict[str, bytes]:
    """The files of the tokenizer that the metadata describes, with its chat template if there is one.

    None for a model without a tokenizer (`no_vocab`).
    """
    kind, name = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind == NO_VOCABULARY:
        return {}
    exact = metadata.get(HUGGINGFACE)
    if not isinstance(exact, str) and (kind != "gpt2" or not isinstance(name, str) or name not in RULES):
        raise ArtifactError(
            f"a tokenizer of the kind {kind!r} with the rule {name!r}, which Ingot does not read",
            place=place,
            fix=f"known are gpt2 with {', '.join(RULES)}; read_gguf(path, tokenizer=False) leaves it out",
        )
    tokens = _list(metadata, "tokens", str, place)
    named = {key: tokens[id] for key, short in NAMED.items() if (id := _id(metadata, short, tokens)) is not None}
    state = exact.encode("utf-8") if isinstance(exact, str) else _json(_bpe(metadata, tokens, named, place))
    ends = [id for short in ENDS if (id := _id(metadata, short, tokens)) is not None]
    files = {
        TOKENIZER_FILE: state,
        TOKENIZER_CONFIG: _json({"tokenizer_class": "PreTrainedTokenizerFast", **named}),
        GENERATION_CONFIG: _json({"eos_token_id": list(dict.fromkeys(ends))}),
    }
    if isinstance(metadata.get("tokenizer.chat_template"), str):
        files[TEMPLATE_FILE] = metadata["tokenizer.chat_template"].encode("utf-8")
    return files


def _bpe(metadata: Mapping[str, Any], tokens: list[str], named: Mapping[str, str], place: str) -> dict[str, Any]:
    """A tokenizer.json of a byte-level BPE."""
    merges, types = _list(metadata, "merges", str, place), _list(metadata, "token_type", int, place)
    if len(types) != len(tokens):
        raise ArtifactError(f"{len(tokens)} tokens, {len(types)} types", place=place, fix="download the file again")
    rule = RULES[metadata["tokenizer.ggml.pre"]]
    opening = metadata.get("tokenizer.ggml.add_bos_token", rule.opening) and named.get("bos_token")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(id, token, kind == CONTROL)
            for id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": {"type": "NFC"} if rule.normalised else None,
        "pre_tokenizer": rule.pre_tokenizer(),
        "post_processor": _begin_with(opening, tokens.index(opening)) if opening else None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.whole_words,
            "vocab": {token: id for id, token in enumerate(tokens) if types[id] != UNUSED},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def _id(metadata: Mapping[str, Any], short: str, tokens: Sequence[str]) -> int | None:
    """The id of a token that the file names, if it names one that exists."""
    id = metadata.get(f"tokenizer.ggml.{short}_token_id")
    return id if isinstance(id, int) and 0 <= id < len(tokens) else None


def _list(metadata: Mapping[str, Any], key: str, kind: type, place: str) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ArtifactError(
            f"tokenizer.ggml.{key} is not a list of {kind.__name__}", place=place, fix="convert the model again"
        )
    return values


def _added(id: int, token: str, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": token, **flags, "special": special}


def _begin_with(name: str, id: int) -> dict[str, Any]:
    """A post-processor that puts one special token before every text."""
    bos, text = {"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [bos, text],
        "pair": [bos, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}},
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8")
