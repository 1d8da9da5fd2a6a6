"""The pool of sequences and its micro-batches: order, completeness, and groups that stay together."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import TASKS, Environment
from ingot.envs.mix import TaskMix
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.conversation_file import can_follow
from ingot.post.data.conversations.sequences import PoolSource, ShuffledPool, pack_groups, repeats, task_conversations
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError


@settings(max_examples=50)
@given(size=st.integers(1, 40), seed=st.integers(0, 5), passes=st.integers(1, 4))
def test_every_pass_is_a_permutation(size: int, seed: int, passes: int) -> None:
    pool = ShuffledPool(size, seed)
    for number in range(passes):
        assert sorted(pool[number * size + i] for i in range(size)) == list(range(size))


def test_an_item_is_a_pure_function_of_seed_and_index() -> None:
    """Asked in any order, by fresh pools or one: the same items; another seed or pass has another order."""
    forward = ShuffledPool(20, 3)
    expected = [forward[index] for index in range(100)]
    backward = ShuffledPool(20, 3)
    assert [backward[index] for index in reversed(range(100))] == expected[::-1]
    assert [ShuffledPool(20, 3)[index] for index in range(100)] == expected
    assert expected[:20] != expected[20:40]
    assert [ShuffledPool(20, 4)[index] for index in range(20)] != expected[:20]


def numbered_groups(lengths: list[list[int]]) -> list[list[TokenSequence]]:
    """Groups of sequences of given lengths; the stream `group` carries the group's number on every token."""
    return [
        [TokenSequence([7] * length, {"group": [float(number)] * length}) for length in group]
        for number, group in enumerate(lengths, start=1)
    ]


def places(batch: Batch) -> Counter[int]:
    """How many predicted tokens of each group a batch holds."""
    return Counter(int(value) for value in batch.streams["group"].flatten().tolist() if value)


@settings(max_examples=50)
@given(
    lengths=st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)).map(list), min_size=1, max_size=12),
    micro_batch_tokens=st.integers(1, 200),
    ranks=st.integers(1, 4),
)
def test_pairs_stay_together_and_nothing_is_lost(lengths: list[list[int]], micro_batch_tokens: int, ranks: int) -> None:
    batches = pack_groups(numbered_groups(lengths), 30, micro_batch_tokens, ranks)
    held = [places(batch) for batch in batches]
    for number, group in enumerate(lengths, start=1):
        assert max(counts[number] for counts in held) == sum(length - 1 for length in group)
        assert sum(counts[number] > 0 for counts in held) == 1
    for batch, counts in zip(batches, held, strict=True):
        assert len(counts) == 1 or batch.token_count <= micro_batch_tokens
        assert len(counts) == 1 or batch.token_count <= math.ceil(sum(map(sum, lengths)) / ranks)


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(2, 30), min_size=1, max_size=20),
    micro_batch_tokens=st.integers(1, 200),
    ranks=st.integers(1, 4),
)
def test_single_sequences_are_cut_by_rows(lengths: list[int], micro_batch_tokens: int, ranks: int) -> None:
    """The rows are the same for any number of ranks, and no rank has all of them while another has none."""
    groups = numbered_groups([[length] for length in lengths])
    batches = pack_groups(groups, 30, micro_batch_tokens, ranks)
    (whole,) = pack_groups(groups, 30, 10_000)
    assert torch.equal(torch.cat([batch.streams["group"] for batch in batches]), whole.streams["group"])
    assert max(len(batch.tokens) for batch in batches) <= math.ceil(len(whole.tokens) / ranks)
    total = sum((places(batch) for batch in batches), Counter[int]())
    assert total == Counter({number: length - 1 for number, length in enumerate(lengths, start=1)})
    assert all(len(batch.tokens) == 1 or batch.tokens.numel() <= micro_batch_tokens for batch in batches)


def test_a_step_draws_the_next_groups_of_the_pool() -> None:
    groups = numbered_groups([[5]] * 7)
    source = PoolSource(groups, 3, 30, 1000, seed=2)
    pool = ShuffledPool(7, 2)
    for step in (4, 0, 2):
        drawn = Counter(pool[step * 3 + i] + 1 for i in range(3))
        (batch,), metrics = source.batches(step)
        assert places(batch) == Counter({number: 4 * times for number, times in drawn.items()})
        assert metrics == {}
    assert [source.steps_of(passes) for passes in (0.1, 1, 2.5, 3)] == [1, 3, 6, 7]
    assert source.describe(7) == ["a pass: 7 answers, 35 tokens, 2.33 steps; 7 steps are 3 passes"]


def test_conversations_of_all_task_kinds_are_masked_to_the_assistant(chat: ChatFormat) -> None:
    """Every kind is there; what is weighted ends turns and never the prompt; the text is the worked solution."""
    end = chat.tokenizer.special["<|im_end|>"]
    generated = [
        name for name, kind in TASKS.builtin().items() if kind.rows is Environment.rows or name == "instructions"
    ]
    sequences = task_conversations(TaskMixConfig(weights=dict.fromkeys(generated, 1.0)), chat, 40, seed=1)
    assert len(sequences) == 40
    for sequence in sequences:
        weights = sequence.streams["weight"]
        assert set(weights) == {0.0, 1.0}
        learnt = [token for token, weight in zip(sequence.tokens, weights, strict=True) if weight]
        turns = chat.tokenizer.decode(sequence.tokens).count("<|im_start|>assistant")
        assert learnt.count(end) == turns >= 1
        first = weights.index(1.0)
        assert chat.tokenizer.decode(sequence.tokens[:first]).endswith(("assistant\n", "<think></think>"))


def test_the_same_seed_gives_the_same_conversations(chat: ChatFormat) -> None:
    made = [task_conversations(TaskMixConfig(), chat, 10, seed) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_a_conversation_longer_than_a_row_is_refused_before_training(chat: ChatFormat) -> None:
    with pytest.raises(
        DataError, match=r"^generated tasks: \w+-\w{12}: the conversation has \d+ tokens, a row of this stage takes 20"
    ):
        task_conversations(TaskMixConfig(), chat, 10, 1, longest=20)


def test_follow_ups_join_tasks_and_lose_none(chat: ChatFormat) -> None:
    mix = TaskMixConfig(weights={"arithmetic": 0.5, "calculator": 0.5})
    tasks = TaskMix(mix).generate(3, 40, "train")
    alone = task_conversations(mix, chat, 40, seed=3)
    longest = 3 * max(len(each.tokens) for each in alone)
    joined = task_conversations(mix, chat, 40, seed=3, longest=longest, follow_ups=1.0)
    assert len(alone) == 40
    assert len(joined) <= 40 / 3
    left = [task.question for task in tasks]
    for sequence in joined:
        text = chat.tokenizer.decode(sequence.tokens)
        turns = [turn.split("<|im_end|>")[0] for turn in text.split("<|im_start|>user\n")[1:]]
        assert len(turns) >= 3 or sequence is joined[-1]
        asked, left = left[: len(turns)], left[len(turns) :]
        assert turns == asked
        needed = any(task.tools for task in tasks if task.question in asked)
        assert text.count('"parameters"') == needed  # the same tool is declared once
        assert len(sequence.tokens) <= longest
    assert not left
    learnt = [sum(sum(each.streams["weight"]) for each in made) for made in (alone, joined)]
    assert learnt[0] == learnt[1]


def test_a_question_follows_one_of_its_own_mode_of_thinking(chat: ChatFormat) -> None:
    mix = TaskMixConfig(weights={"arithmetic": 0.5, "no_think": 0.5})
    made = task_conversations(mix, chat, 40, seed=3, follow_ups=1.0)
    texts = [chat.tokenizer.decode(each.tokens) for each in made]
    assert [text.count("<|im_start|>user") for text in texts] == [20, 20]
    assert sorted(text.count("<think></think>") for text in texts) == [0, 20]


def test_conversations_of_a_file_follow_tasks_too(chat: ChatFormat) -> None:
    """In the mode of the question before; tasks stay as they are, and the tool on offer with them."""
    mix = TaskMixConfig(weights={"arithmetic": 0.5, "no_think": 0.5})
    other = Conversation([Message("user", "Who is Rex?"), Message("assistant", "A dog.")])
    traced = Conversation([Message("user", "Rex?"), Message("assistant", "A dog.", thinking="a name")], thinking=True)
    alone = task_conversations(mix, chat, 200, seed=3, follow_ups=0.5)
    assert task_conversations(mix, chat, 200, seed=3, follow_ups=0.5, others=[other], other_share=0.0) == alone
    made = task_conversations(mix, chat, 200, seed=3, follow_ups=0.5, others=[other, traced], other_share=0.6)
    texts = [chat.tokenizer.decode(each.tokens) for each in made]
    assert len(made) == len(alone)  # none opens a conversation: alone, they come from the file
    count = sum(text.count("A dog.") for text in texts)
    assert 200 * 0.3 - 20 < count < 200 * 0.3 + 20  # three standard errors
    assert sum(text.count("<|im_start|>user") for text in texts) == 200 + count
    thinking = [text for text in texts if "Who is Rex?<|im_end|>\n<|im_start|>assistant\n<think></think>A dog." in text]
    assert thinking and any("<think>a name</think>A dog." in text for text in texts)
    direct = TaskMixConfig(weights={"no_think": 1.0})
    made = task_conversations(direct, chat, 50, seed=3, follow_ups=0.5, others=[other, traced], other_share=0.6)
    text = "".join(chat.tokenizer.decode(each.tokens) for each in made)
    assert "Who is Rex?" in text and "a name" not in text  # one with a trace follows only where there is thinking


def test_only_what_makes_sense_after_other_questions_follows_them() -> None:
    user, answer, system = Message("user", "Hi"), Message("assistant", "Hello"), Message("system", "Be brief.")
    assert can_follow(Conversation([user, answer]))
    cut = replace(answer, problems=["no <|im_end|>: the turn is cut off"])
    for other in (
        Conversation([system, user, answer]),
        Conversation([user, answer], tools=[{"name": "search"}]),
        Conversation([user, answer], weights=[0.0, 0.0]),
        Conversation([user, answer], plain=True),
        Conversation([user, cut]),
    ):
        assert not can_follow(other)


def test_few_conversations_of_files_are_repeated_to_their_share() -> None:
    for own, others, share in [(2, 1000, 0.2), (300, 1000, 0.2), (1, 7, 0.5), (3, 0, 0.5)]:
        times = repeats(own, others, share)
        assert own * times / (own * times + others) >= share
        assert times == 1 or own * (times - 1) / (own * (times - 1) + others) < share
    assert repeats(5, 1000, 0.0) == 1


def test_spare_tools_are_offered_where_no_task_needs_one(chat: ChatFormat) -> None:
    mix = TaskMixConfig(weights={"arithmetic": 0.5, "calculator": 0.5})
    tasks = TaskMix(mix).generate(3, 40, "train")
    for chance, offered in ((0.0, [bool(task.tools) for task in tasks]), (1.0, [True] * 40)):
        made = task_conversations(mix, chat, 40, seed=3, spare_tools=chance)
        texts = [chat.tokenizer.decode(each.tokens) for each in made]
        assert ["Tools:" in text for text in texts] == offered
        assert ["<tool_call>" in text for text in texts] == [bool(task.tools) for task in tasks]  # offered, not used
    sums = TaskMixConfig(weights={"arithmetic": 1})  # no task of its own has a tool: the chat's own is offered
    texts = [chat.tokenizer.decode(each.tokens) for each in task_conversations(sums, chat, 9, seed=3, spare_tools=1.0)]
    assert all("calculator" in text and "<tool_call>" not in text for text in texts)
