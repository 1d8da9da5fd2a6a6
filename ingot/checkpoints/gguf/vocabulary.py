"""Writes a tokenizer as the metadata of a GGUF file: tokens, their types, merges, and the name of the rule that cuts text.

A GGUF file names the rule (`tokenizer.ggml.pre`) and llama.cpp has it as code, so a tokenizer can be written only if one of
llama.cpp's rules cuts as it does. Two of them are near: `NEAR` says where they differ. Where a reader of the file would make
another tokenizer, it also holds this one as it is (`tokenizer.huggingface.json`, a key of the specification): Ingot reads it.

The counterpart of tokenizer.py. Tags of traces and tool calls become user-defined tokens, whatever they were: llama.cpp shows
no text for special ones, and its server finds traces and calls in the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ingot.checkpoints.gguf.tokenizer import (
    CONTROL,
    ENDS,
    HUGGINGFACE,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    tokenizer_files,
)
from ingot.tokens.bpe.classes import MARK
from ingot.tokens.bpe.rules import CL100K, GPT2, LETTERS, O200K, Rules, rules_of
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import (
    THINK_END,
    THINK_START,
    TOKENIZER_FILE,
    TOOL_CALL_END,
    TOOL_CALL_START,
    TOOL_RESPONSE_END,
    TOOL_RESPONSE_START,
    Tokenizer,
)
from ingot.workspace.errors import ArtifactError, DataError

NAMES: dict[tuple[Rules, bool], str] = {
    (GPT2, False): "gpt-2",
    (GPT2._replace(digits_first=True), False): "smollm",
    (CL100K._replace(digits=1), False): "qwen2",
    (CL100K, False): "smaug-bpe",
    (CL100K, True): "llama-bpe",
    (CL100K._replace(word=LETTERS | MARK, digits=1), False): "qwen35",
    (O200K, False): "gpt-4o",
}
"""How a tokenizer cuts text, and whether a word that is a token stays whole: llama.cpp's name of it."""
NEAR = {
    "qwen35": "llama.cpp cuts a run of signs before a combining mark inside it (such as !❤️) and the tokenizer does not",
    "gpt-4o": "llama.cpp takes letters outside of ASCII for upper and lower case at once where the tokenizer cuts by case",
}
"""What llama.cpp does otherwise where its rule is not the tokenizer's."""
SHOWN = frozenset({THINK_START, THINK_END, TOOL_CALL_START, TOOL_CALL_END, TOOL_RESPONSE_START, TOOL_RESPONSE_END})
FIX = "`ingot export` a folder: transformers, vLLM and SGLang read the tokenizer as it is"


class GgufVocabulary(NamedTuple):
    """The metadata, and notes for the person who writes the file."""

    metadata: dict[str, Any]
    notes: tuple[str, ...]


def vocabulary(tokenizer: Tokenizer, rows: int, place: str) -> GgufVocabulary:
    """The metadata of a tokenizer, for a model whose embedding has so many `rows`."""
    if tokenizer.vocabulary_size > rows:
        problem = f"the tokenizer has {tokenizer.vocabulary_size:,} tokens, the model {rows:,}"
        raise ArtifactError(problem, place=place, fix="export the model with the tokenizer that it was trained with")
    state = json.loads(tokenizer.to_files()[TOKENIZER_FILE])
    name, notes = _rule(state, place)
    metadata: dict[str, Any] = {"model": "gpt2", "pre": name, **_tokens(state, rows), **_named(tokenizer)}
    metadata["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]]
    found = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    if tokenizer.chat_template is not None:
        found["tokenizer.chat_template"] = tokenizer.chat_template
    if name in NEAR or not _comes_back(state, found, place):
        found[HUGGINGFACE] = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    return GgufVocabulary(found, (*notes, *_stops(tokenizer, metadata)))


def _comes_back(state: Mapping[str, Any], metadata: Mapping[str, Any], place: str) -> bool:
    """Whether the metadata alone gives a tokenizer that encodes as this one."""
    back = json.loads(tokenizer_files(metadata, place)[TOKENIZER_FILE])
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return (
        state.get("normalizer") == back["normalizer"]
        and state["model"]["vocab"] == back["model"]["vocab"]
        and not any(added[flag] for added in state["added_tokens"] for flag in flags)
    )


def _rule(state: Mapping[str, Any], place: str) -> tuple[str, list[str]]:
    """llama.cpp's name of how the tokenizer cuts text, with notes about the difference."""
    model = state["model"]
    if model.get("type") != "BPE" or not _is_plain(model):
        raise ArtifactError(
            f"Ingot writes byte-level BPE tokenizers into GGUF files, not this {model.get('type')} (of sentencepiece, or with "
            "other marks)",
            place=place,
            fix="`ingot export` a folder; llama.cpp's convert_hf_to_gguf.py makes a GGUF file of it",
        )
    rules = rules_of(state.get("pre_tokenizer"))
    whole = bool(model.get("ignore_merges", False))
    name = None if rules is None else NAMES.get((rules, whole))
    if name is None:
        known = ", ".join(NAMES.values())
        problem = f"the tokenizer cuts text by a rule that llama.cpp does not have (written are {known})"
        raise ArtifactError(problem, place=place, fix=f"train with `split: cl100k` and `digits: single`; or {FIX}")
    notes = [f"{NEAR[name]}: it gives such texts other tokens than the model was trained on"] if name in NEAR else []
    match state.get("normalizer"):
        case None:
            pass
        case {"type": "NFC"}:
            notes.append("llama.cpp does not compose characters (NFC) before it cuts text, as the tokenizer does")
        case other:
            raise ArtifactError(f"a normalizer that llama.cpp does not have: {other}", place=place, fix=FIX)
    return name, notes


def _is_plain(model: Mapping[str, Any]) -> bool:
    """Whether the BPE merges as llama.cpp does: every pair by rank, no dropout, no marks on parts of words."""
    unusual = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "unk_token")
    return not any(model.get(key) for key in unusual)


def _tokens(state: Mapping[str, Any], rows: int) -> dict[str, list[Any]]:
    """Every id's token and type; ids without a token are unused."""
    tokens, types = [f"[PAD{id}]" for id in range(rows)], [UNUSED] * rows
    for token, id in state["model"]["vocab"].items():
        tokens[id], types[id] = token, NORMAL
    for added in state["added_tokens"]:
        visible = added["content"] in SHOWN or not added["special"]
        tokens[added["id"]], types[added["id"]] = added["content"], USER_DEFINED if visible else CONTROL
    return {"tokens": tokens, "token_type": types}


def _named(tokenizer: Tokenizer) -> dict[str, Any]:
    """The ids of the tokens that have a role."""
    known = {token.content: id for id, token in tokenizer.backend.get_added_tokens_decoder().items()}
    named = tokenizer.names
    ids = {"bos": tokenizer.opening[-1] if tokenizer.opening else known.get(named.get("bos_token", ""))}
    eos = known.get(named.get("eos_token", ""), tokenizer.end_of_text)
    ids |= dict(zip(ENDS, [eos, *(end for end in all_ends(tokenizer) if end != eos)], strict=False))
    ids |= {"padding": tokenizer.pad, "unknown": known.get(named.get("unk_token", ""))}
    return {f"{key}_token_id": id for key, id in ids.items() if id is not None} | {
        "add_bos_token": bool(tokenizer.opening)
    }


def all_ends(tokenizer: Tokenizer) -> Sequence[int]:
    """The tokens at which the model stops; those of its files alone where the chat template is one that Ingot refuses."""
    if tokenizer.chat_template is None:
        return tokenizer.ends
    try:
        return ChatFormat(tokenizer).stop_tokens
    except (ArtifactError, DataError):
        return tokenizer.ends


def _stops(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> list[str]:
    """A note about ends that the file has no key for."""
    written = {metadata.get(f"{key}_token_id") for key in ENDS}
    left = [tokenizer.piece(end) for end in all_ends(tokenizer) if end not in written]
    return (
        [f"llama.cpp does not stop at {', '.join(left)} unless it knows the name: a file has three ends"]
        if left
        else []
    )
