"""The batches of a step as the loop gets them: denominators counted by hand, and the same whether they are made ahead or not."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest
import torch

from ingot.post.data.conversations.sequences import pack_groups
from ingot.tokens.batch import Batch, BatchMetadata, TokenSequence
from ingot.tokens.metadata import Sizes, with_metadata
from ingot.tokens.packing import make_batch
from ingot.train.batches import Shapes, deal, lengthen, split_rows
from ingot.train.feed import Feed
from ingot.train.layouts.steps import uneven
from ingot.train.losses.policy_gradient import PolicyGradient
from ingot.train.losses.terms import CrossEntropy, LossTerm, ZLoss
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed

CPU = torch.device("cpu")
TERMS: tuple[LossTerm, ...] = (CrossEntropy(), ZLoss())


class Counted(Source):
    """Uneven rows of step s in micro-batches of two; remembers what it was asked for."""

    def __init__(self, ahead: bool, scale: float = 1.0) -> None:
        self.ahead, self.scale, self.asked = ahead, scale, list[int]()

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        self.asked.append(step)
        batches = split_rows(uneven(step, rows=5), 2)
        for batch in batches:
            batch.streams["weight"].mul_(self.scale)
        return deal(batches, rank, world), {"drawn": float(step)}


@pytest.fixture(params=[False, True], ids=["when asked", "ahead"])
def feed(request: pytest.FixtureRequest) -> Iterator[Feed]:
    opened = Feed(Counted(request.param), TERMS, None, 3, CPU)
    yield opened
    opened.close()


def test_counts_are_those_of_all_micro_batches(feed: Feed) -> None:
    for step in (3, 4, 5):
        prepared = feed.get(step)
        whole = uneven(step, rows=5)
        weights = sum(float(value) for row in whole.streams["weight"] for value in row)
        assert {name: float(count) for name, count in prepared.counts.items()} == {
            "cross_entropy": weights,
            "z_loss": weights,
        }
        assert prepared.tokens == sum(int(number) >= 0 for row in whole.documents for number in row)
        assert prepared.logged == {"drawn": float(step)} and prepared.waited >= 0
        assert torch.equal(torch.cat([batch.tokens for batch in prepared.batches]), whole.tokens)
        denominators, tokens, learns = prepared.totals(None, CPU)
        assert learns == 1
        assert float(denominators["z_loss"]) == weights and float(tokens) == prepared.tokens


def test_a_source_that_changes_its_mind(feed: Feed) -> None:
    """After a restart the steps are asked for again: what was made ahead is forgotten."""
    before = feed.get(3)
    assert isinstance(feed.source, Counted)
    feed.source.scale = 2.0
    feed.restart(4)
    after = feed.get(4)
    assert float(before.counts["cross_entropy"]) == float(uneven(3, rows=5).streams["weight"].sum())
    assert float(after.counts["cross_entropy"]) == 2 * float(uneven(4, rows=5).streams["weight"].sum())


@pytest.mark.parametrize("ahead", [False, True])
def test_errors_of_the_data_reach_the_loop(ahead: bool) -> None:
    silent = Feed(Counted(ahead, scale=0.0), TERMS, None, 0, CPU)
    with pytest.raises(CheckFailed, match=r"step 0 has nothing to learn from: .* 'cross_entropy' is 0.0"):
        silent.get(0)
    silent.close()
    missing = Feed(Counted(ahead), (PolicyGradient(),), None, 0, CPU)
    with pytest.raises(CheckFailed, match="'policy_gradient' reads advantage, response_mask, sampled_logprob"):
        missing.get(0)
    missing.close()


class Summed:
    """The layout of one of two data ranks; the other one has counted these."""

    data_rank, data_world = 0, 2

    def __init__(self, *others: float) -> None:
        self.others = torch.tensor(others, dtype=torch.float64)

    def size(self, axis: str) -> int:
        return 1

    def sum_over(self, total: torch.Tensor, *axes: str) -> torch.Tensor:
        return total + self.others


@pytest.mark.parametrize(("others", "wanted"), [(0.0, 1.0), (5.0, 5.0)])
def test_ranks_decide_alike_about_a_step_without_a_token_to_learn_from(others: float, wanted: float) -> None:
    """By the sums over all of them: a denominator of 0 is 1, and one of another rank counts here as there."""
    source = Counted(False, scale=0.0)
    source.may_be_empty = True
    for layout in (Summed(others, others, 7.0), None):
        opened = Feed(source, TERMS, layout, 0, CPU)  # type: ignore[arg-type]
        denominators, tokens, learns = opened.get(0).totals(layout, CPU)  # type: ignore[arg-type]
        assert {float(each) for each in denominators.values()} == {wanted if layout else 1.0} and tokens > 0
        assert learns == (1 if layout and others else 0)
        opened.close()


def test_a_mask_below_zero_is_an_error_also_where_steps_may_be_empty() -> None:
    source = Counted(False, scale=-1.0)
    source.may_be_empty = True
    with pytest.raises(CheckFailed, match="nothing to learn from"):
        Feed(source, TERMS, None, 0, CPU).get(0)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_make_the_same_number_of_passes(world: int) -> None:
    """Each micro-batch is dealt once, in turn; a rank that has fewer gets padding."""
    for count in range(1, 10):
        batches = [make_batch([TokenSequence([number, 7, 8])], 2) for number in range(1, count + 1)]
        dealt = [deal(batches, rank, world) for rank in range(world)]
        passes = -(-count // world)
        assert [len(mine) for mine in dealt] == [passes] * world
        for rank, mine in enumerate(dealt):
            own = batches[rank::world]
            assert all(one is other for one, other in zip(mine, own, strict=False))
            assert all((batch.documents == -1).all() and not batch.token_count for batch in mine[len(own) :])


@pytest.mark.parametrize(("context", "length"), [(1, 33), (2, 36), (3, 36), (4, 40)])
def test_rows_are_cut_into_two_pieces_for_each_rank_of_a_context(context: int, length: int) -> None:
    """The first and the last of 2 N pieces go to one rank, so that each has as much to attend to."""

    class Divided(Summed):
        data_rank, data_world = 0, 1

        def size(self, axis: str) -> int:
            return {"context": context}.get(axis, 1)

    class Long(Counted):
        def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
            return [make_batch([TokenSequence([1] * 34, {"weight": [1.0] * 34})] * 2, 33)], {}

    opened = Feed(Long(False), TERMS, Divided(), 0, CPU)  # type: ignore[arg-type]
    [batch] = opened.get(0).batches
    assert batch.tokens.shape == (2, length)
    opened.close()


def test_rows_are_lengthened_with_padding() -> None:
    batch = make_batch(
        [
            TokenSequence([5, 6, 7, 8], {"weight": [1.0] * 4}, {"state": torch.ones(4, 2)}),
            TokenSequence([9, 4], {"weight": [0.5] * 2}, {"state": torch.full((2, 2), 3.0)}),
        ],
        3,
    )
    batch = dataclasses.replace(batch, sources=torch.tensor([4, 5]))
    assert lengthen(batch, 3) is batch
    longer = lengthen(batch, 4)
    assert longer.tokens.tolist() == [[5, 6, 7, 0], [9, 0, 0, 0]]
    assert longer.targets.tolist() == [[6, 7, 8, 0], [4, 0, 0, 0]]
    assert longer.positions.tolist() == [[0, 1, 2, 0], [0, 0, 0, 0]]
    assert longer.documents.tolist() == [[0, 0, 0, -1], [0, -1, -1, -1]]
    assert longer.streams["weight"].tolist() == [[1.0, 1.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.0]]
    assert longer.vectors["state"].tolist() == [[[1, 1], [1, 1], [1, 1], [0, 0]], [[3, 3], [0, 0], [0, 0], [0, 0]]]
    assert longer.token_count == 4 and torch.equal(longer.sources, batch.sources)  # type: ignore[arg-type]
    nine = dataclasses.replace(make_batch([TokenSequence([1, 2])] * 9, 1), sources=torch.arange(1, 10))
    (rounded,) = Shapes().round([nine])
    assert rounded.sources is not None and rounded.sources.tolist() == [*range(1, 10), 0]


def test_steps_of_many_sizes_have_few_shapes() -> None:
    """Rows of padding say nothing, and 1 to 32 rows become one of 16 numbers."""
    shapes = set()
    for rows in range(1, 33):
        batch = make_batch([TokenSequence([1, 2, 3 + row], {"weight": [0.0, 1.0, 1.0]}) for row in range(rows)], 2)
        (rounded,) = Shapes().round([batch])
        assert torch.equal(rounded.targets[:rows, :2], batch.targets)
        assert int((rounded.streams["weight"] != 0).sum()) == 2 * rows
        assert rounded.token_count == batch.token_count
        assert rounded.tokens.shape[1] == 64
        shapes.add(len(rounded.tokens))
    assert shapes == {*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32}


def test_a_shape_that_was_there_is_taken_again() -> None:
    """If it is at most a quarter larger, or a few times if it is more."""
    known = Shapes()

    def rounded(rows: int, length: int) -> tuple[int, int]:
        batch = make_batch([TokenSequence([1] * (length + 1), {"weight": [1.0] * (length + 1)})] * rows, length)
        (made,) = known.round([batch])
        assert made.token_count == batch.token_count
        return made.tokens.shape[0], made.tokens.shape[1]

    assert rounded(27, 192) == (28, 192)
    assert rounded(23, 180) == (28, 192), "24 rows would do"
    assert rounded(28, 192) == (28, 192)
    shapes = [rounded(10, 120) for _ in range(10)]
    assert shapes == [(28, 192)] * 8 + [(10, 128)] * 2, "much larger, until it came often"
    assert rounded(9, 120) == (10, 128)
    assert rounded(29, 192) == (32, 192), "what does not fit has a shape of its own"


def test_steps_of_several_micro_batches_have_one_shape() -> None:
    """Answers of any number and length: blocks are compiled once."""
    known, sizes, shapes = Shapes(), Sizes(), set()
    for step in range(12):
        rng = random.Random(step)
        lengths = [rng.randrange(8, 120) for _ in range(200 + 10 * step)]
        groups = [[TokenSequence([1] * length, {"weight": [0.0] + [1.0] * (length - 1)})] for length in lengths]
        plain = pack_groups(groups, 128, 2048)
        rounded = sizes.same([with_metadata(batch, varies=True) for batch in known.round(plain)])
        assert sum(batch.token_count for batch in rounded) == sum(lengths) - len(
            lengths
        )  # first tokens are not predicted
        assert len(plain[-1].tokens) <= len(plain[0].tokens) == 16
        assert {len(batch.tokens) for batch in rounded} == {16}, "no rows but those that fill up the last"
        shapes |= {
            (batch.tokens.shape, len(metadata_of(batch).starts), metadata_of(batch).longest) for batch in rounded
        }
    assert len(shapes) == 1


def metadata_of(batch: Batch) -> BatchMetadata:
    assert batch.metadata is not None
    return batch.metadata
