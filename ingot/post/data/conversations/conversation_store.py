"""Training sequences on disk: tokens, weights and where each begins, mapped into memory and read as they are needed.

    tokens.bin      uint32, one sequence after the other
    weights.bin     uint8, the weight of each token in the loss
    starts.npy      where each sequence begins, and the end of the last
    report.json     the sequences of each source, what was dropped and cut

A store is written once, by several processes where there is much to write, into a folder that is whole or absent. Its name is the
hash of all that it follows from: files, forms, filters, template, tokenizer. So a stage that goes on, or is repeated with another
learning rate, reads what is there, and draws the same batches. Memory holds eight bytes for each sequence, however long it is.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.local_pool import LocalPool, available_processors
from ingot.data.engine.pool import PoolCall, SerialPool, WorkPool
from ingot.post.data.conversations.conversation_file import Dropped, RowReading, render_row
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError
from ingot.workspace.files import atomic_folder, file_sha256, read_json, write_json

ROWS = 256  # that a process renders at a time
EXAMPLES = 20  # of dropped conversations, by what dropped them
STALL_SECONDS = 600.0  # without any answer of a process
Placed = tuple[str, Mapping[str, Any], tuple[bool, ...] | None]
"""Where a row is, the row, and which of its conversations are kept (None: all)."""


@dataclass(frozen=True)
class StoreSource:
    """Rows that are read alike. `read` begins at the first row each time it is called."""

    name: str
    read: Callable[[], Iterable[Placed]]
    reading: RowReading


@dataclass
class StoreReport:
    """What became of the rows. `sequences` by source, in the order of the store; `dropped` by what dropped them."""

    sequences: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: int = 0
    cut: int = 0
    learnt: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[Dropped] = field(default_factory=list)

    def drop(self, each: Dropped) -> None:
        """Count a dropped conversation, and keep the first few of each kind."""
        self.dropped[each.by] += 1
        if self.dropped[each.by] <= EXAMPLES:
            self.examples.append(each)


class ConversationStore(Sequence[list[TokenSequence]]):
    """The sequences of a finished store, each as a group of its own."""

    def __init__(self, folder: Path) -> None:
        written = read_json(folder / "report.json")
        examples = [Dropped(**each) for each in written.pop("examples")]
        self.report = StoreReport(**{**written, "dropped": Counter(written["dropped"]), "examples": examples})
        self.starts: NDArray[np.int64] = np.load(folder / "starts.npy", mmap_mode="r")
        self._tokens = _mapped(folder / "tokens.bin", np.uint32)
        self._weights = _mapped(folder / "weights.bin", np.uint8)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not in 0..{len(self) - 1}")
        start, end = int(self.starts[index]), int(self.starts[index + 1])
        weights = self._weights[start:end].astype(np.float64).tolist()
        return [TokenSequence(self._tokens[start:end].tolist(), {"weight": weights})]

    def length(self, index: int) -> int:
        """The tokens of a sequence."""
        return int(self.starts[index + 1] - self.starts[index])

    @property
    def tokens_by_source(self) -> list[int]:
        """The tokens of each source that a model predicts: all but the first of a sequence."""
        ends = itertools.accumulate(self.report.sequences, initial=0)
        return [
            int(self.starts[last] - self.starts[first]) - (last - first) for first, last in itertools.pairwise(ends)
        ]


def write_store(
    folder: Path,
    sources: Sequence[StoreSource],
    tokenizer: Tokenizer,
    generated: Mapping[str, Sequence[TokenSequence]] | None = None,
    dropped: Sequence[Dropped] = (),
    *,
    workers: int | None = None,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Render every source into a new store at `folder`, and add the sequences that were `generated`, by source.

    `dropped` is what was dropped before, for the report. `between` is called now and then, and may raise.
    """
    report, starts = StoreReport(), array("q", [0])
    for each in dropped:
        report.drop(each)
    with atomic_folder(folder) as temporary, make_pool(workers) as pool:
        tokenizer.save(temporary / "tokenizer")  # read by the processes
        with (temporary / "tokens.bin").open("wb") as tokens, (temporary / "weights.bin").open("wb") as weights:

            def add(name: str, parts: Iterable[Made]) -> None:
                before = len(starts)
                for made in parts:
                    tokens.write(made.tokens.tobytes())
                    weights.write(made.weights.tobytes())
                    for length in made.lengths:
                        starts.append(starts[-1] + length)
                    report.cut += made.cut
                    report.learnt += int(np.count_nonzero(made.weights))
                    for each in made.dropped:
                        report.drop(each)
                report.sequences.append(len(starts) - before)
                report.names.append(name)

            for source in sources:
                add(source.name, in_order(pool, _calls(source, temporary / "tokenizer", report), between))
            for name, sequences in (generated or {}).items():
                add(name, [pack(sequences)])
        np.save(temporary / "starts.npy", np.frombuffer(starts, dtype=np.int64))
        written = vars(report) | {"dropped": dict(report.dropped), "examples": [vars(each) for each in report.examples]}
        write_json(temporary / "report.json", written)


def make_pool(workers: int | None) -> WorkPool:
    """Processes that render; None: one for each processor, 1: this one."""
    count = workers or available_processors()
    return LocalPool(count) if count > 1 else SerialPool()


def in_order(pool: WorkPool, calls: Iterable[PoolCall], between: Callable[[], None]) -> Iterator[Any]:
    """The values of the calls in their order, with twice as many under way as the pool is wide."""
    waiting, there = iter(calls), dict[int, Any]()
    under_way, wanted = 0, 0
    while True:
        for call in itertools.islice(waiting, max(0, 2 * pool.width - under_way - len(there))):
            pool.submit(call)
            under_way += 1
        if wanted in there:
            yield there.pop(wanted)
            wanted += 1
            continue
        if not under_way:
            return
        between()
        answers = pool.wait(STALL_SECONDS)
        if not answers:
            raise DataError(f"no process has answered for {STALL_SECONDS:.0f} s", fix="is the machine out of memory?")
        for answer in answers:
            under_way -= 1
            if answer.error is not None:
                answer.fail()
            if answer.lost:
                raise DataError(f"a process that rendered conversations {answer.lost}", fix="is there enough memory?")
            there[answer.number] = answer.value


@dataclass(frozen=True)
class Made:
    """The sequences of some rows, one after the other."""

    tokens: NDArray[np.uint32]
    weights: NDArray[np.uint8]
    lengths: list[int]
    cut: int
    dropped: list[Dropped]


def _calls(source: StoreSource, tokenizer: Path, report: StoreReport) -> Iterator[PoolCall]:
    rows = iter(source.read())
    content = content_hash({path.name: file_sha256(path) for path in sorted(tokenizer.iterdir())})
    for number in itertools.count():
        chunk = list(itertools.islice(rows, ROWS))
        if not chunk:
            return
        report.rows += len(chunk)
        yield PoolCall(number, render_rows, (str(tokenizer), content, source.reading, chunk))


def render_rows(tokenizer: str, content: str, reading: RowReading, rows: Sequence[Placed]) -> Made:
    """What a process makes of some rows, with the tokenizer of a folder that has this content."""
    chat = _chat(tokenizer, content)
    sequences, dropped, cut = list[TokenSequence](), list[Dropped](), 0
    for place, row, kept in rows:
        for each in render_row(place, row, chat, reading, kept):
            if isinstance(each, Dropped):
                dropped.append(each)
            else:
                sequences += each.sequences
                cut += each.cut
    return pack(sequences, cut, dropped)


def pack(sequences: Sequence[TokenSequence], cut: int = 0, dropped: Sequence[Dropped] = ()) -> Made:
    """Sequences as arrays."""
    tokens = itertools.chain.from_iterable(each.tokens for each in sequences)
    weights = itertools.chain.from_iterable(each.streams["weight"] for each in sequences)
    return Made(
        np.fromiter(tokens, np.uint32),
        np.fromiter(weights, np.float32).astype(np.uint8),
        [len(each.tokens) for each in sequences],
        cut,
        list(dropped),
    )


@lru_cache(maxsize=1)
def _chat(tokenizer: str, content: str) -> ChatFormat:
    return ChatFormat(Tokenizer.load(Path(tokenizer)))


def _mapped(path: Path, dtype: type[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # nothing can be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
