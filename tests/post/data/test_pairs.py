"""Preference pairs: which answers are paired, and what their sequences carry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ingot.envs.episode import Episode
from ingot.post.data.pairs.own_pairs import best_and_worst, match
from ingot.post.data.pairs.pair import FileAnswer, Pair, PairSource, pair_sequences
from ingot.post.data.pairs.unpaired import mismatched
from ingot.post.prefer_config import PreferConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.preference import Preference
from ingot.workspace.errors import CheckFailed, DataError
from tests.post.making import CONTEXT, episode, random_tokens, tiny_model
from tests.post.peers import llama


def answer(length: int, reward: float) -> Episode:
    return episode([("prompt", [5, 6]), ("assistant", [9] * length)], reward)


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


def test_best_against_worst() -> None:
    """Rewards of any size; answers that earned the same are no pair, and neither is one that is much longer."""
    rewards = {"a": 0.2, "b": 0.9, "c": 0.5, "d": 0.5, "e": 0.9, "f": -1.0}
    answers = {name: answer(3, value) for name, value in rewards.items()}
    names = {id(each): name for name, each in answers.items()}
    found = [
        (names[id(pair.chosen)], names[id(pair.rejected)]) for pair in best_and_worst(list(answers.values()), None)
    ]
    assert found == [("b", "f"), ("e", "a")]
    assert best_and_worst([answer(3, 0.4), answer(5, 0.4)], None) == []
    assert best_and_worst([answer(3, 1.0), answer(9, 0.0)], 5) == []
    assert len(best_and_worst([answer(3, 1.0), answer(9, 0.0)], 6)) == 1


def test_mismatched_answers_are_to_other_prompts() -> None:
    """Both answers of a pair have one prompt: the answer beside is then no other one, and the next is taken."""
    written = [FileAnswer([*prompt, *reply], [0] * len(prompt) + [1] * len(reply)) for prompt, reply in ANSWERED]
    made = mismatched(written, longest=6)
    assert [each.ids for each in made] == [[1, 2, 30], [1, 2, 30], [3, 11], [4, 4, 4, 4, 20, 21]]
    assert [each.marks for each in made] == [[0, 0, 1], [0, 0, 1], [0, 1], [0, 0, 0, 0, 1, 1]]
    with pytest.raises(DataError, match="all rows have the same prompt"):
        mismatched(written[:2], longest=6)


ANSWERED = [([1, 2], [10]), ([1, 2], [11]), ([3], [20, 21, 22]), ([4, 4, 4, 4], [30])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": {"strong": {"model": "m"}}}, "need both `strong` and `weak`"),
        ({"pairs": {"strong": {"model": "m"}, "weak": {}}}, "give either `model`"),
        ({"pairs": {"files": ("a",), "strong": {"model": "m"}, "weak": {"model": "m"}}}, "either from `files` or from"),
        ({"pairs": {"files": ("a",), "refresh": 2}}, "`refresh` samples the model's own answers"),
        ({"pairs": {"refresh": 2}, "algorithm": "kto"}, "kto takes single answers"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PreferConfig.model_validate({"steps": 1, "sequence_length": 8, **options})
