"""Preference pairs: which answers are paired, and what their sequences carry."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.envs.episode import Episode
from ingot.post.pairs import Pair, PairSource, match, pair_sequences
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.terms import Preference
from ingot.workspace.errors import CheckFailed
from tests.post.making import CONTEXT, episode, random_tokens, tiny_model
from tests.post.peers import llama


def answer(length: int, reward: float) -> Episode:
    return episode([("prompt", [5, 6]), ("assistant", [9] * length)], reward)


@settings(deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0.0, 0.5, 1.0])), max_size=10),
    gap=st.integers(0, 6),
)
def test_matching(lengths: list[tuple[int, float]], gap: int) -> None:
    """Right against wrong, within the cap, none twice, each with the closest one left, and none left that would fit."""
    answers = [answer(*each) for each in lengths]
    pairs = match(answers, gap)
    wrong = [each for each in answers if each.score.reward == 0]
    paired = {id(pair.chosen): pair for pair in pairs}
    assert len({id(pair.rejected) for pair in pairs}) == len(pairs) == len(paired)
    for chosen in (each for each in answers if each.score.reward == 1):
        distances = [abs(each.sampled_count - chosen.sampled_count) for each in wrong]
        if id(chosen) not in paired:
            assert min(distances, default=gap + 1) > gap
            continue
        rejected = paired[id(chosen)].rejected
        assert rejected.score.reward == 0
        assert abs(rejected.sampled_count - chosen.sampled_count) == min(distances) <= gap
        wrong = [each for each in wrong if each is not rejected]


def test_an_answer_without_tokens_is_not_paired() -> None:
    assert match([answer(1, 1.0), episode([("prompt", [5, 6])], 0.0)], 10) == []


def test_streams_of_pairs(tokenizer: Tokenizer) -> None:
    """Marks on the policy's tokens only (not on a tool's), and transformers' log-probabilities there."""
    generator = torch.Generator().manual_seed(0)
    size = tokenizer.vocabulary_size
    parts = [random_tokens(length, size, generator) for length in (4, 3, 5, 2, 6)]
    chosen = episode([("prompt", parts[0]), ("assistant", parts[1]), ("tool", parts[2]), ("assistant", parts[3])], 1)
    rejected = episode([("prompt", parts[0]), ("assistant", parts[4])])
    reference = tiny_model(tokenizer)
    peer = llama(reference)
    (group,) = pair_sequences([Pair(chosen, rejected)], reference, CONTEXT)
    for sequence, half, mine, other in zip(
        group, (chosen, rejected), ("chosen", "rejected"), ("rejected", "chosen"), strict=True
    ):
        assert sequence.tokens == half.tokens()
        assert sequence.streams[mine] == half.sampled()
        assert sequence.streams[other] == [0.0] * half.length
        assert sequence.streams["weight"] == (half.sampled() if half is chosen else [0.0] * half.length)
        ids = torch.tensor([sequence.tokens])
        with torch.no_grad():
            logs = peer(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].tolist()
        expected = [0.0, *(log * one for log, one in zip(logs, half.sampled()[1:], strict=True))]
        assert sequence.streams["reference_logprob"] == pytest.approx(expected, abs=1e-5)


def test_pairs_are_numbered_within_the_step(tokenizer: Tokenizer) -> None:
    pairs = [Pair(answer(length, 1.0), answer(length + 1, 0.0)) for length in (2, 3, 4)]
    source = PairSource(pair_sequences(pairs, tiny_model(tokenizer), CONTEXT), 5, CONTEXT, 10_000, seed=0)
    (batch,), _ = source.batches(3)
    term = Preference()
    assert term.denominator(batch.streams) == 5
    for name in ("chosen", "rejected"):
        numbers = batch.streams[name]
        assert numbers[numbers > 0].unique().tolist() == [1, 2, 3, 4, 5]


def test_a_pair_split_over_two_micro_batches_is_an_error() -> None:
    streams = {"chosen": torch.tensor([1.0, 2.0, 0.0]), "rejected": torch.tensor([0.0, 0.0, 1.0])}
    with pytest.raises(CheckFailed, match="split over two micro-batches"):
        Preference().denominator(streams)
