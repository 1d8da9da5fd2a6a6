"""The order of data: pure in (seed, step), complete in each epoch, equal for every world size; rows by brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ingot.tokens.batch import Batch
from ingot.tokens.loader import MixtureLoader, Packing, validation_batches
from ingot.tokens.phases import ConstantBatch
from ingot.tokens.shards import Shards
from ingot.tokens.windows import WindowRows
from ingot.workspace.errors import ArtifactError, DataError, RecipeError
from tests.tokens.sources import Phase, write_lengths

LENGTH = 16


PHASES = (Phase(0.6, {"prose": 0.7, "code": 0.3}), Phase(1.0, {"code": 0.25, "prose": 0.25, "best": 0.5}))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(5)
    counts = {"prose": 75, "code": 35, "best": 11, "validation": 20}
    lengths = {name: generator.integers(1, 41, count) for name, count in counts.items()}
    return write_lengths(tmp_path_factory.mktemp("loader") / "shards", lengths)


def make(shards: Path, seed: int = 1, rows: int = 6, steps: int = 50, packing: Packing = "split") -> MixtureLoader:
    return MixtureLoader(
        shards,
        PHASES,
        sequence_length=LENGTH,
        batches=ConstantBatch(rows),
        total_steps=steps,
        seed=seed,
        packing=packing,
    )


def same(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.tokens, other.tokens)
        and torch.equal(one.targets, other.targets)
        and torch.equal(one.positions, other.positions)
        and torch.equal(one.documents, other.documents)
        and torch.equal(one.streams["weight"], other.streams["weight"])
        and one.sources is not None
        and other.sources is not None
        and torch.equal(one.sources, other.sources)
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
        assert batch.sources is not None
        assert [loader.source_names[number] for number in batch.sources.tolist()] == [
            name for name, _ in loader.rows(step)
        ]


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


def joined(parts: list[Batch]) -> Batch:
    return Batch(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.targets for part in parts]),
        torch.cat([part.positions for part in parts]),
        torch.cat([part.documents for part in parts]),
        {"weight": torch.cat([part.streams["weight"] for part in parts])},
        torch.cat([part.sources for part in parts if part.sources is not None]),
    )


@pytest.mark.parametrize("packing", ["split", "greedy", "best_fit"])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 6])
def test_every_world_size_sees_the_same_batches(shards: Path, world: int, packing: Packing) -> None:
    whole, parts = (make(shards, packing=packing) for _ in range(2))
    for step in (0, 1, 29, 30, 49):
        ranks = [parts.batch(step, rank, world) for rank in range(world)]
        assert same(joined(ranks), whole.batch(step))


@pytest.mark.parametrize("packing", ["split", "greedy", "best_fit"])
def test_no_dependence_on_history(shards: Path, packing: Packing) -> None:
    straight = make(shards, packing=packing)
    batches = [straight.batch(step) for step in range(60)]
    for step in (59, 49, 0, 31, 30, 29, 7):
        assert same(make(shards, packing=packing).batch(step), batches[step]), "resumed at this step in a new process"
    shuffled = make(shards, packing=packing)
    for step in np.random.default_rng(0).permutation(60).tolist():
        assert same(shuffled.batch(step), batches[step])


def test_steps_beyond_the_end_go_on_with_the_last_phase(shards: Path) -> None:
    loader, longer = make(shards, steps=50), make(shards, steps=5000)
    names = [name for step in range(50, 150) for name, _ in loader.rows(step)]
    assert Counter(names) == {"best": 300, "code": 150, "prose": 150}
    assert loader.batch(10**9).tokens.shape == longer.batch(10**9).tokens.shape == (6, LENGTH)


@dataclass(frozen=True)
class Growing:
    """One row in step 0, two in step 1, …"""

    def rows(self, step: int) -> int:
        return step + 1

    def rows_before(self, step: int) -> int:
        return step * (step + 1) // 2


def test_batches_that_grow_draw_the_same_rows_in_the_same_order(shards: Path) -> None:
    """The rows of the run are one sequence; the plan of batches only says where it is cut."""
    arguments: dict[str, Any] = {"sequence_length": LENGTH, "seed": 1}
    phases = (Phase(until_tokens=101 * LENGTH, weights=PHASES[0].weights), PHASES[1])
    growing = MixtureLoader(shards, phases, batches=Growing(), total_steps=20, **arguments)
    single = MixtureLoader(shards, phases, batches=ConstantBatch(1), total_steps=210, **arguments)
    row = 0
    for step in range(20):
        expected = joined([single.batch(row + number) for number in range(step + 1)])
        assert same(growing.batch(step), expected)
        row += step + 1


def test_neighbours_in_the_order_are_not_neighbours_in_the_source(tmp_path: Path) -> None:
    """One document is half of the source; its windows come as seldom in a row as chance has it.

    Of n windows in random order, pairs of places (i, i + 1) hold windows (w, w + 1) once in expectation, with variance
    close to 1; pairs of places that both hold one of the m windows of the long document number m (m − 1) / n, whose
    variance is below m/4 for m = n/2 (without replacement there is less of it than with).
    """
    long = 4000 * LENGTH
    loader_shards = write_lengths(tmp_path / "shards", {"one": np.asarray([long, *[50] * (long // 50)])})
    loader = MixtureLoader(
        loader_shards,
        (Phase(1, {"one": 1}),),
        sequence_length=LENGTH,
        batches=ConstantBatch(100),
        total_steps=80,
        seed=3,
    )
    whole = WindowRows(loader.shards.source("one"), LENGTH, "3/one")
    count = whole.per_epoch
    order = np.asarray([int(whole.row(index).starts[0]) // LENGTH for index in range(count)])
    tokens = loader.batch(7).tokens.numpy()
    stream = loader.shards.source("one").read(0, 10**9)
    assert all(np.array_equal(tokens[row], stream[order[700 + row] * LENGTH :][:LENGTH]) for row in range(100))
    assert sorted(order) == list(range(count))
    assert np.sum(order[1:] == order[:-1] + 1) <= 6, "Poisson with mean 1: above 6 with probability 1e-4"
    inside = order < long // LENGTH
    both = int(np.sum(inside[1:] & inside[:-1]))
    m = int(inside.sum())
    assert abs(both - m * (m - 1) / count) < 4 * (m / 4) ** 0.5
    longest = max(len(run) for run in "".join("ab"[int(value)] for value in inside).split("a"))
    assert longest < 2 + np.log2(count) * 2, "the longest run of heads in n throws is about log2 n"


def test_long_documents_get_a_share_of_their_own(tmp_path: Path) -> None:
    """`books@64+`: its share of rows is its weight, its rows hold long documents only, and each of them equally often."""
    generator = np.random.default_rng(2)
    lengths = np.concatenate([generator.integers(2, 60, 300), generator.integers(64, 100, 20)])
    folder = write_lengths(tmp_path / "shards", {"books": generator.permutation(lengths)})
    weights = {"books": 3.0, "books@64+": 1.0}
    loader = MixtureLoader(
        folder,
        (Phase(1, weights),),
        sequence_length=128,
        batches=ConstantBatch(8),
        total_steps=50,
        seed=1,
        packing="best_fit",
    )
    assert loader.source_names == ("books", "books@64+")
    names = Counter(name for step in range(50) for name, _ in loader.rows(step))
    assert names == {"books": 300, "books@64+": 100}
    source = loader.shards.source("books")
    stream, starts = source.read(0, 10**9), source.starts
    ends = np.append(starts[1:], len(stream))
    long = {tuple(stream[start:end]) for start, end in zip(starts, ends, strict=True) if end - start >= 64}
    seen: Counter[tuple[int, ...]] = Counter()
    for step in range(50):
        batch = loader.batch(step)
        assert batch.sources is not None
        for row in torch.nonzero(batch.sources == 1).flatten().tolist():
            for number in range(int(batch.documents[row].max()) + 1):
                inside = batch.documents[row] == number
                seen[(*batch.tokens[row, inside].tolist(), int(batch.targets[row, inside][-1]))] += 1
    assert set(seen) == long
    assert loader.epochs()["books@64+"] == pytest.approx(sum(seen.values()) / len(long), abs=1)
    assert max(seen.values()) - min(seen.values()) <= 1, "whole passes: none is seen twice more than another"


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
    def loader(phases: tuple[Phase, ...], length: int = LENGTH, packing: Packing = "split") -> MixtureLoader:
        return MixtureLoader(
            shards,
            phases,
            sequence_length=length,
            batches=ConstantBatch(2),
            total_steps=10,
            seed=1,
            packing=packing,
        )

    with pytest.raises(ArtifactError, match="no source 'poetry'; there are best, code, prose, validation"):
        loader((Phase(1, {"poetry": 1}),))
    with pytest.raises(ArtifactError, match="no source 'poetry'"):
        loader((Phase(1, {"prose": 1, "poetry": 0}),))
    with pytest.raises(RecipeError, match="'prose@long': what follows @ is not a length"):
        loader((Phase(1, {"prose@long": 1}),), packing="best_fit")
    with pytest.raises(RecipeError, match=r"'prose@20\+' chooses documents by length"):
        loader((Phase(1, {"prose@20+": 1}),))
    with pytest.raises(DataError, match="prose: no document has 41 tokens"):
        loader((Phase(1, {"prose@41+": 1}),), packing="best_fit")
    with pytest.raises(RecipeError, match="may not train on `validation`"):
        loader((Phase(1, {"validation": 1}),))
    with pytest.raises(RecipeError, match="the phases end at row 10, the run at 20"):
        loader((Phase(0.5, {"prose": 1}),))
    with pytest.raises(RecipeError, match="phases must end one after the other"):
        loader((Phase(0.5, {"prose": 1}), Phase(0.2, {"prose": 1}), Phase(1, {"prose": 1})))
    with pytest.raises(DataError, match="do not fill a row of 4096"):
        loader((Phase(1, {"best": 1}),), length=4096)
    with pytest.raises(ValueError, match="step -1"):
        loader((Phase(1, {"best": 1}),)).batch(-1)
    with pytest.raises(ValueError, match="rank 2 of 2"):
        loader((Phase(1, {"best": 1}),)).batch(0, 2, 2)
    with pytest.raises(RecipeError, match="step 7 has 2 rows for 3 data-parallel ranks"):
        loader((Phase(1, {"best": 1}),)).batch(7, 0, 3)


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
