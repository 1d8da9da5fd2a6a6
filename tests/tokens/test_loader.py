"""The order of data: pure in (seed, step), complete in each epoch, equal for every world size; rows by brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from ingot.tokens.batch import Batch
from ingot.tokens.loader import MixtureLoader, validation_batches
from ingot.tokens.shards import Shards, SourceWriter, write_index
from ingot.workspace.errors import ArtifactError, DataError, RecipeError

torch.set_num_threads(1)
VOCABULARY, LENGTH = 997, 16


@dataclass(frozen=True)
class Phase:
    until: float
    weights: dict[str, float]


PHASES = (Phase(0.6, {"prose": 0.7, "code": 0.3}), Phase(1.0, {"code": 0.25, "prose": 0.25, "best": 0.5}))


def random_documents(generator: np.random.Generator, tokens: int) -> list[list[int]]:
    """Documents of 1 to 40 tokens, each ended by 0, with about `tokens` tokens in all."""
    found: list[list[int]] = []
    while sum(map(len, found)) < tokens:
        found.append([*generator.integers(1, VOCABULARY, generator.integers(0, 40)).tolist(), 0])
    return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loader") / "shards"
    generator = np.random.default_rng(5)
    entries = {}
    for name, tokens in {"prose": 1500, "code": 700, "best": 200, "validation": 400}.items():
        writer = SourceWriter(folder, name, VOCABULARY)
        for number, document in enumerate(random_documents(generator, tokens)):
            writer.append(f"{name} {number}", document, 3 * (len(document) - 1), 0.5)
        entries[name] = writer.finish()
    token_bytes = np.full(VOCABULARY, 3, dtype=np.int32)
    token_bytes[0] = 0
    write_index(folder, entries, token_bytes, end_of_text=0)
    return folder


def make(shards: Path, seed: int = 1, rows: int = 6, steps: int = 50, length: int = LENGTH) -> MixtureLoader:
    return MixtureLoader(shards, PHASES, sequence_length=length, rows_per_step=rows, total_steps=steps, seed=seed)


def same(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.tokens, other.tokens)
        and torch.equal(one.targets, other.targets)
        and torch.equal(one.positions, other.positions)
        and torch.equal(one.documents, other.documents)
        and torch.equal(one.streams["weight"], other.streams["weight"])
    )


def brute_row(source_tokens: list[int], start: int, length: int) -> list[tuple[int, int, int, int, float]]:
    """One row by walking along the tokens: (token, target, position, document, weight)."""
    row, position, document = [], 0, 0
    for place in range(start, start + length):
        ends = source_tokens[place] == 0
        target = 0 if ends else source_tokens[place + 1]
        row.append((source_tokens[place], target, position, document, 0.0 if ends else 1.0))
        position, document = (0, document + 1) if ends else (position + 1, document)
    return row


def find_window(loader: MixtureLoader, batch: Batch, row: int, name: str) -> int:
    """Which window of the source the row is, by looking for its tokens in the whole stream."""
    stream = loader.shards.source(name).read(0, 10**9)
    wanted = batch.tokens[row].numpy()
    starts = range(0, len(stream) - LENGTH, LENGTH)
    (found,) = [start // LENGTH for start in starts if np.array_equal(stream[start : start + LENGTH], wanted)]
    return found


def test_rows_equal_brute_force(shards: Path) -> None:
    loader = make(shards)
    streams = {name: source.read(0, 10**9).tolist() for name, source in loader.shards.sources.items()}
    for step in range(50):
        batch = loader.batch(step)
        assert batch.tokens.dtype == batch.targets.dtype == torch.int64
        assert batch.streams["weight"].dtype == torch.float32
        for row, (name, _) in enumerate(loader.rows(step)):
            window = find_window(loader, batch, row, name)
            columns = zip(
                batch.tokens[row].tolist(),
                batch.targets[row].tolist(),
                batch.positions[row].tolist(),
                batch.documents[row].tolist(),
                batch.streams["weight"][row].tolist(),
                strict=True,
            )
            assert list(columns) == brute_row(streams[name], window * LENGTH, LENGTH)


def test_each_epoch_visits_every_window_once_in_a_new_order(shards: Path) -> None:
    loader = make(shards, rows=7, steps=120)
    drawn: dict[str, list[int]] = {"prose": [], "code": [], "best": []}
    for step in range(120):
        batch = loader.batch(step)
        for row, (name, index) in enumerate(loader.rows(step)):
            assert index == len(drawn[name]), "indices of a source count up without a gap, across phases too"
            drawn[name].append(find_window(loader, batch, row, name))
    for name, windows in drawn.items():
        count = (len(loader.shards.source(name)) - 1) // LENGTH
        epochs = [windows[start : start + count] for start in range(0, len(windows), count)]
        assert len(epochs) > 1, "the run is long enough to repeat"
        for epoch in epochs[:-1]:
            assert sorted(epoch) == list(range(count))
        assert len(set(epochs[-1])) == len(epochs[-1])
        assert epochs[0] != epochs[1][: len(epochs[0])]
        assert epochs[0] != sorted(epochs[0])
        assert loader.epochs()[name] == pytest.approx(len(windows) / count)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6])
def test_every_world_size_sees_the_same_batches(shards: Path, world: int) -> None:
    whole = make(shards)
    for step in (0, 1, 29, 30, 49):
        parts = [make(shards).batch(step, rank, world) for rank in range(world)]
        joined = Batch(
            torch.cat([part.tokens for part in parts]),
            torch.cat([part.targets for part in parts]),
            torch.cat([part.positions for part in parts]),
            torch.cat([part.documents for part in parts]),
            {"weight": torch.cat([part.streams["weight"] for part in parts])},
        )
        assert same(joined, whole.batch(step))


def test_no_dependence_on_history(shards: Path) -> None:
    straight = make(shards)
    batches = [straight.batch(step) for step in range(50)]
    for step in (49, 0, 31, 30, 29, 7):
        assert same(make(shards).batch(step), batches[step]), "resumed at this step in a new process"
    shuffled = make(shards)
    for step in np.random.default_rng(0).permutation(50).tolist():
        assert same(shuffled.batch(step), batches[step])


def test_the_seed_changes_the_order_and_not_the_mixture(shards: Path) -> None:
    one, other = make(shards, seed=1), make(shards, seed=2)
    assert [one.rows(step) for step in range(50)] == [other.rows(step) for step in range(50)]
    differing = sum(not same(one.batch(step), other.batch(step)) for step in range(50))
    assert differing == 50


def test_weights_are_kept_within_one_row_at_every_moment(shards: Path) -> None:
    loader = make(shards)
    first = [name for step in range(30) for name, _ in loader.rows(step)]
    second = [name for step in range(30, 50) for name, _ in loader.rows(step)]
    for names, phase in ((first, PHASES[0]), (second, PHASES[1])):
        seen: Counter[str] = Counter()
        for count, name in enumerate(names, start=1):
            seen[name] += 1
            assert set(seen) <= set(phase.weights)
            assert all(abs(seen[key] - weight * count) < 1 for key, weight in phase.weights.items())


def test_validation_scores_every_token_once_with_its_bytes(shards: Path) -> None:
    source = Shards(shards).source("validation")
    batches = validation_batches(shards, LENGTH, rows=1000, rows_per_batch=4)
    scored: Counter[int] = Counter()
    total = 0
    for batch, size in batches:
        assert len(batch.tokens) <= 4
        weight = batch.streams["weight"] > 0
        assert not weight[batch.documents < 0].any()
        scored.update(batch.targets[weight].tolist())
        total += size
    tokens = source.read(0, len(source))
    firsts = Counter(tokens[np.asarray(source.starts)].tolist())
    # A document cut between two windows keeps its tokens: only first tokens are not scored.
    assert scored == Counter(tokens.tolist()) - firsts
    # Each token stands for 3 bytes here; first tokens are not scored (a document of one token is end-of-text: 0 bytes).
    unscored = 3 * sum(times for token, times in firsts.items() if token != 0)
    assert total == int(source.text_bytes.sum()) - unscored


def test_validation_takes_evenly_spaced_rows(shards: Path) -> None:
    everything = torch.cat([batch.tokens for batch, _ in validation_batches(shards, LENGTH, rows=1000)])
    some = torch.cat([batch.tokens for batch, _ in validation_batches(shards, LENGTH, rows=5)])
    assert torch.equal(some, everything[[number * len(everything) // 5 for number in range(5)]])


def test_mistakes_are_named(shards: Path, tmp_path: Path) -> None:
    def loader(phases: tuple[Phase, ...], length: int = LENGTH) -> MixtureLoader:
        return MixtureLoader(shards, phases, sequence_length=length, rows_per_step=2, total_steps=10, seed=1)

    with pytest.raises(ArtifactError, match="no source 'poetry'; there are best, code, prose, validation"):
        loader((Phase(1, {"poetry": 1}),))
    with pytest.raises(RecipeError, match="may not train on `validation`"):
        loader((Phase(1, {"validation": 1}),))
    with pytest.raises(RecipeError, match="the phases end at row 10, the run at 20"):
        loader((Phase(0.5, {"prose": 1}),))
    with pytest.raises(RecipeError, match="phases must end at rising shares"):
        loader((Phase(0.5, {"prose": 1}), Phase(0.2, {"prose": 1}), Phase(1, {"prose": 1})))
    with pytest.raises(DataError, match="do not fill a row of 4096"):
        loader((Phase(1, {"best": 1}),), length=4096)
    with pytest.raises(ValueError, match="step 10 of a run of 10"):
        loader((Phase(1, {"best": 1}),)).batch(10)
    with pytest.raises(ValueError, match="rank 0 of 3 with 2 rows"):
        loader((Phase(1, {"best": 1}),)).batch(0, 0, 3)


def test_a_corrupt_shard_stops_the_loader(shards: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    path = copy / "code" / "tokens.bin"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"code.tokens\.bin.*checksum"):
        make(copy)
