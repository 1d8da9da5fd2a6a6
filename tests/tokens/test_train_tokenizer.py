"""BPE training against a naive trainer, the statistics against hand counts, and the stage."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer
from ingot.tokens.train_tokenizer import run as run_stage
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import ArtifactError, DataError, Interrupted
from ingot.workspace.stage import StageFolder
from tests.tokens.conftest import held_ids

if TYPE_CHECKING:
    from tests.tokens.conftest import WriteDocuments


def naive_merges(words: Counter[str], count: int) -> list[tuple[str, str]]:
    """Byte-pair encoding by the book: recount all pairs, merge the most frequent. None of our or the library's code.

    Of equally frequent pairs the one whose parts are oldest wins (letters in order, then merges in order).
    """
    split = {word: list(word) for word in words}
    age = {letter: ord(letter) for word in words for letter in word}
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], age[pair[0]], age[pair[1]]))
        merges.append(best)
        age["".join(best)] = 1_000 + len(merges)
        for pieces in split.values():
            index = 0
            while index < len(pieces) - 1:
                if (pieces[index], pieces[index + 1]) == best:
                    pieces[index : index + 2] = ["".join(best)]
                index += 1
    return merges


def test_merges_equal_a_naive_trainer(rows: list[dict[str, object]]) -> None:
    words = Counter(re.findall("[a-z]+", " ".join(str(row["text"]) for row in rows)))
    text = "\n".join(word for word, times in words.items() for _ in range(times))
    tokenizer = train_tokenizer([text], TokenizerConfig(vocabulary_size=272 + 130))
    learnt = [tuple(merge) for merge in json.loads(tokenizer.backend.to_str())["model"]["merges"]]
    assert len(learnt) == 130
    assert [merge for merge in learnt if "Ċ" not in "".join(merge)][:120] == naive_merges(words, 120)


@pytest.mark.parametrize(("digits", "longest"), [("single", 1), ("groups_of_three", 3), ("groups_from_the_right", 3)])
def test_digits(digits: str, longest: int) -> None:
    text = "year 2024 and 2024 and 123456 or x1999 " * 50
    tokenizer = train_tokenizer([text], TokenizerConfig.model_validate({"vocabulary_size": 400, "digits": digits}))
    pieces = [tokenizer.piece(id) for id in range(len(SPECIAL_TOKENS), tokenizer.vocabulary_size)]
    runs = [piece for piece in pieces if piece.strip().isdigit()]
    assert max(len(run) for run in runs) == longest
    assert not [piece for piece in pieces if any(map(str.isdigit, piece)) and not piece.isdigit()]
    count = len(tokenizer.encode("123456"))
    assert count == 6 // longest


def test_longest_token_and_minimum_frequency() -> None:
    text = "=" * 4000 + "\n" + "once"
    config = TokenizerConfig(vocabulary_size=400, longest_token=8, minimum_frequency=2)
    tokenizer = train_tokenizer([text], config)
    lengths = [len(tokenizer.piece(id)) for id in range(len(SPECIAL_TOKENS), tokenizer.vocabulary_size)]
    assert max(lengths) == 8
    assert len(tokenizer.encode("once")) == 4, "a pair that occurs once is not merged"


def test_special_names_in_the_training_text_change_nothing_special() -> None:
    tokenizer = train_tokenizer(["<|im_end|><think>hello</think>" * 100], TokenizerConfig(vocabulary_size=300))
    assert [tokenizer.special[name] for name in SPECIAL_TOKENS] == list(range(16))
    assert min(tokenizer.encode("<|im_end|><think>")) >= 16


def test_training_does_not_depend_on_threads(tmp_path: Path, documents: Path, folder: StageFolder) -> None:
    config = TokenizerConfig(vocabulary_size=700)
    run_stage(config, {"documents": documents}, folder)
    here = (folder.path / "tokenizer" / "tokenizer.json").read_bytes()
    program = (
        "import sys; from pathlib import Path; from ingot.tokens.train_tokenizer import run as run_stage;"
        "from ingot.tokens.config import TokenizerConfig; from ingot.workspace.stage import StageFolder;"
        "from ingot.workspace.progress import Progress; run_stage(TokenizerConfig(vocabulary_size=700),"
        "{'documents': Path(sys.argv[1])}, StageFolder(Path(sys.argv[2]), seed=2, progress=Progress()))"
    )
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(documents), str(tmp_path / "other")]
    subprocess.run(command, check=True, env=environment, timeout=120)
    assert (tmp_path / "other" / "tokenizer" / "tokenizer.json").read_bytes() == here


def test_stage(documents: Path, rows: list[dict[str, object]], folder: StageFolder) -> None:
    summary = run_stage(TokenizerConfig(vocabulary_size=700), {"documents": documents}, folder)
    statistics = json.loads((folder.path / "tokenizer" / "statistics.json").read_text(encoding="utf-8"))
    outside = held_ids(rows, 0.02)
    test = [row for row in rows if row["id"] in outside]
    train = [row for row in rows if row["id"] not in outside]
    assert statistics["training_documents"] == len(train)
    assert statistics["training_bytes"] == sum(len(str(row["text"]).encode()) for row in train)
    assert statistics["held_out"]["all"]["bytes"] == sum(len(str(row["text"]).encode()) for row in test)
    assert summary["bytes_per_token"]["all"] > 1.5
    assert summary["fertility"]["all"] > 1
    assert 0 < summary["continued_word_share"]["all"] < 1
    assert Tokenizer.load(folder.path / "tokenizer").vocabulary_size == summary["vocabulary_size"] == 700


def test_training_bytes_bounds_the_sample(documents: Path, folder: StageFolder) -> None:
    run_stage(TokenizerConfig(vocabulary_size=300, training_bytes=10_000), {"documents": documents}, folder)
    statistics = json.loads((folder.path / "tokenizer" / "statistics.json").read_text(encoding="utf-8"))
    assert 10_000 <= statistics["training_bytes"] < 40_000


def test_the_sample_is_balanced(
    rows: list[dict[str, object]], folder: StageFolder, tmp_path: Path, write_documents: WriteDocuments
) -> None:
    """By bytes, whatever the corpus has: of a corpus that is mostly code, three quarters prose."""
    spoken = [{**row, "language": "python" if row["kind"] == "code" else "english"} for row in rows]
    documents = write_documents(tmp_path / "documents", spoken)
    config = TokenizerConfig.model_validate(
        {
            "vocabulary_size": 300,
            "training_bytes": 16_000,
            "balance": {"column": "language", "shares": {"english": 3, "python": 1}},
            "measure_by": ["language"],
            "held_out_share": 0.2,
        }
    )
    run_stage(config, {"documents": documents}, folder)
    statistics = json.loads((folder.path / "tokenizer" / "statistics.json").read_text(encoding="utf-8"))
    assert statistics["training_shares"]["english"] > 0.6
    assert {"language=english", "language=python", "all"} == set(statistics["held_out"])
    with pytest.raises(ArtifactError, match="no column 'topic'"):
        run_stage(TokenizerConfig(measure_by=["topic"]), {"documents": documents}, folder)


def test_stop_and_empty_text(
    documents: Path, folder: StageFolder, tmp_path: Path, write_documents: WriteDocuments
) -> None:
    blank: list[dict[str, object]] = [
        {"id": str(number), "text": "", "kind": "prose", "quality": 0.5} for number in range(3)
    ]
    empty = write_documents(tmp_path / "documents", blank, files=1)
    with pytest.raises(DataError, match="hold no text"):
        run_stage(TokenizerConfig(), {"documents": empty}, folder)
    folder.stop.request()
    with pytest.raises(Interrupted):
        run_stage(TokenizerConfig(), {"documents": documents}, folder)
    assert not (folder.path / "tokenizer").exists()
