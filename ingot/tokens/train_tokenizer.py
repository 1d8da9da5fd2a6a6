"""Stage `tokenizer`: train a byte-level BPE on curated documents and measure it on held-out ones.

Byte-pair encoding (Sennrich et al. 2016) over bytes (GPT-2): start from the 256 bytes, merge the most frequent adjacent
pair until the vocabulary is full. Merges never cross the cuts of `split_pattern`: words keep at most one character
before them, numbers are cut by the `digits` rule, runs of blanks stay together for code.

Invariants: special tokens have the ids 0..15 of `SPECIAL_TOKENS`; the same documents and config give the same bytes on
disk, with any number of threads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from ingot.tokens.chat import default_chat_template
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.documents import Document, held_out, place_of, read_documents, read_ids
from ingot.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer
from ingot.workspace.errors import DataError
from ingot.workspace.files import atomic_folder, write_json
from ingot.workspace.stage import Stage, StageFolder

STATISTICS_FILE = "statistics.json"
NUMBERS = {"single": r"\p{N}", "groups_of_three": r"\p{N}{1,3}"}


def split_pattern(digits: str) -> str:
    """The regular expression whose matches are encoded each by itself."""
    return "|".join(
        [
            r"'(?i:[sdmt]|ll|ve|re)",  # English contractions
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",  # a word with the one blank or sign before it
            NUMBERS[digits],
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",  # punctuation, with the line ends after it
            r"\s*[\r\n]+",  # line ends with the blanks before them
            r"\s+(?!\S)",  # blanks, leaving the last one to the word that follows
            r"\s+",
        ]
    )


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig | None = None) -> Tokenizer:
    """Train on `texts`; the chat template is the one that comes with Ingot."""
    config = config or TokenizerConfig()
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split_pattern(config.digits)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary_size,
        min_frequency=config.minimum_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=config.longest_token + 1,  # the library makes tokens shorter than this, never as long
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, default_chat_template())


def measure(tokenizer: Tokenizer, documents: Iterable[Document]) -> dict[str, dict[str, float]]:
    """How well the tokenizer fits `documents`: numbers for each kind and for `all`.

    * bytes_per_token: UTF-8 bytes divided by tokens; higher means shorter sequences.
    * fertility: tokens divided by blank-separated words.
    * continued_word_share: share of words (each with a blank before it) that take two or more tokens.
    """
    texts: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        texts[document.kind].append(document.text)
        texts["all"].append(document.text)
    result: dict[str, dict[str, float]] = {}
    for kind, group in sorted(texts.items()):
        tokens = sum(map(len, tokenizer.encode_batch(group)))
        words = Counter(word for text in group for word in text.split())
        count = words.total()
        if not tokens or not count:
            continue  # nothing but blanks was held out of this kind
        pieces = tokenizer.encode_batch([" " + word for word in words])
        continued = sum(times for times, ids in zip(words.values(), pieces, strict=True) if len(ids) > 1)
        bytes_of_text = sum(len(text.encode("utf-8")) for text in group)
        result[kind] = {
            "documents": len(group),
            "bytes": bytes_of_text,
            "tokens": tokens,
            "words": count,
            "bytes_per_token": round(bytes_of_text / tokens, 4),
            "fertility": round(tokens / count, 4),
            "continued_word_share": round(continued / count, 4),
        }
    return result


def run(config: TokenizerConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train, measure, write tokenizer/."""
    documents = inputs["documents"]
    outside = held_out(read_ids(documents), config.held_out_share)
    texts, test, size = _choose(documents, outside, config.training_bytes)
    folder.stop.check()
    folder.progress.say(f"training on {len(texts):,} documents, {size / 1e6:.1f} MB")
    tokenizer = train_tokenizer(texts, config)
    folder.stop.check()
    statistics = {
        "vocabulary_size": tokenizer.vocabulary_size,
        "training_documents": len(texts),
        "training_bytes": size,
        "held_out": measure(tokenizer, test),
    }
    with atomic_folder(folder.artifact("tokenizer")) as temporary:
        tokenizer.save(temporary)
        write_json(temporary / STATISTICS_FILE, statistics)
    if tokenizer.vocabulary_size < config.vocabulary_size:
        folder.progress.say(
            f"the text gave only {tokenizer.vocabulary_size:,} of {config.vocabulary_size:,} tokens: no pair occurs "
            f"{config.minimum_frequency} times any more"
        )
    return _summary(statistics)


def _choose(documents: Path, outside: frozenset[str], limit: int) -> tuple[list[str], list[Document], int]:
    """Training texts within `limit` bytes (by hash of id if there are more), held-out documents, training bytes."""
    sizes: dict[str, int] = {}
    for batch in read_documents(documents):
        sizes |= {document.id: len(document.text.encode("utf-8")) for document in batch if document.id not in outside}
    chosen, total = set(sizes), sum(sizes.values())
    if total > limit:
        chosen, total = set(), 0
        for id in sorted(sizes, key=lambda id: place_of(id, "tokenizer")):
            if total >= limit:
                break
            chosen.add(id)
            total += sizes[id]
    if total == 0:
        raise DataError("the documents hold no text", place=str(documents), fix="look at what the curate stage kept")
    texts: list[str] = []
    test: list[Document] = []
    for batch in read_documents(documents):
        texts += [document.text for document in batch if document.id in chosen]
        test += [document for document in batch if document.id in outside]
    return texts, test, total


def _summary(statistics: dict[str, Any]) -> dict[str, Any]:
    held = statistics["held_out"]
    summary: dict[str, Any] = {"vocabulary_size": statistics["vocabulary_size"]}
    for name in ("bytes_per_token", "fertility", "continued_word_share"):
        summary[name] = {kind: values[name] for kind, values in held.items()}
    return summary


STAGE = Stage(kind="tokenizer", config=TokenizerConfig, needs={"documents": "documents"}, makes=("tokenizer",), run=run)
