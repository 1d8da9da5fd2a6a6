"""Thoughts that are cut: what is kept, what is learnt of it, and that it teaches a model to stop."""

from __future__ import annotations

from pathlib import Path

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode, Node, Segment
from ingot.envs.task import Task
from ingot.post.data.conversations.sequences import task_conversations
from ingot.post.sft import Sft
from ingot.post.sft import run as run_sft
from ingot.post.sft_config import SftConfig
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.post.synthesis.cut_thoughts import cut_thought
from ingot.post.synthesis.stage import run as synthesize
from ingot.tokens.chat import ChatFormat, Message
from tests.making.rows import read_rows
from tests.making.stages import stage_folder
from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer

LIMIT = 5
EASY = {"digits_min": 1, "digits_max": 1}
LEARNS = {  # to think at all: a model that was not trained does not begin a thought
    "tasks": {"weights": {"arithmetic": 1}, "arithmetic": EASY},
    "task_conversations": 64,
    "steps": 30,
    "sequence_length": 128,
    "batch_conversations": 8,
    "optimizer": {"lr": 1e-2},
}


def episode(chat: ChatFormat, written: list[int]) -> Episode:
    """What a policy wrote to a question in the mode of thinking."""
    messages = [Message("user", "How much?")]
    prompt = Node("prompt", chat.prompt(messages, [], thinking=True), sampled=False)
    said = Node("assistant", written, True, [0.0] * len(written), [0] * len(written))
    return Episode(Task("id", "sums", tuple(messages), "1"), [Segment([prompt, said])])


def test_a_long_thought_is_cut_at_the_limit_and_closed() -> None:
    chat = ChatFormat(tiny_tokenizer())
    encode, close = chat.tokenizer.encode, chat.tokenizer.token("</think>")
    thought = encode("abcdefghij")
    opened = (
        []
        if chat.opens_trace(chat.prompt([Message("user", "x")], [], thinking=True))
        else [chat.tokenizer.token("<think>")]
    )
    limit = LIMIT + len(opened)
    cut = cut_thought(episode(chat, [*opened, *thought]), chat, limit)
    assert cut is not None and cut.thinking == chat.tokenizer.decode(thought[:LIMIT])
    assert cut.content == "" and not cut.problems
    finished = [*opened, *thought, close, *encode("answer"), chat.turn_end]
    assert cut_thought(episode(chat, finished), chat, limit) == cut  # also a thought that did end, later
    short = [*opened, *thought[: LIMIT - 1], close, *encode("a long answer"), chat.turn_end]
    assert cut_thought(episode(chat, short), chat, limit) is None
    assert cut_thought(episode(chat, [*opened, *thought[:LIMIT]]), chat, limit) is None  # not longer than the limit


def test_own_thoughts_become_conversations_of_which_the_end_is_learnt(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    first = stage_folder(tmp_path / "first")
    run_sft(SftConfig.model_validate(LEARNS), {"checkpoint": checkpoint_of(model, tmp_path / "model")}, first)
    checkpoint = first.artifact("checkpoint")
    options = {
        "environments": [
            {"environment": {"task": "arithmetic", **EASY}, "count": 8, "samples": 2, "cut_thoughts": LIMIT}
        ],
        "temperature": 1.0,
        "max_tokens": 16,
        "keep_documents": False,
    }
    folder = stage_folder(tmp_path / "cut")
    synthesize(SynthesizeConfig.model_validate(options), {"checkpoint": checkpoint}, folder)
    rows = read_rows(folder.artifact("conversations") / "arithmetic.jsonl")
    assert len(rows) > 4  # what it learnt in 30 steps is to begin a thought, hardly to end it
    assert all(row["messages"][-1]["content"] == "" and row["messages"][-1]["thinking"] for row in rows)

    config = SftConfig.model_validate({"tasks": None, "learn": ["</think>"], "sequence_length": 128, "steps": 1})
    stage = Sft(
        config,
        {"checkpoint": checkpoint, "conversations": folder.artifact("conversations")},
        stage_folder(tmp_path / "sft"),
    )
    chat = ChatFormat(tokenizer)
    wanted = [chat.tokenizer.token("</think>"), chat.turn_end]
    store = stage._store()
    assert len(store) == len(rows)
    for number in range(len(store)):
        [sequence] = store[number]
        learnt = [token for token, weight in zip(sequence.tokens, sequence.streams["weight"], strict=True) if weight]
        assert learnt == wanted


def test_learn_counts_for_generated_conversations_too() -> None:
    chat = ChatFormat(tiny_tokenizer())
    mix = TaskMixConfig.model_validate({"weights": {"arithmetic": 1}, "arithmetic": EASY})
    for one in task_conversations(mix, chat, 4, seed=1, learn="everything"):
        assert set(one.streams["weight"]) == {1.0}
    end = (chat.tokenizer.token("</think>"), chat.turn_end)
    for one in task_conversations(mix, chat, 4, seed=1, learn=("</think>",)):
        assert tuple(t for t, w in zip(one.tokens, one.streams["weight"], strict=True) if w) == end
    for one in task_conversations(mix, chat, 4, seed=1):
        tokens = [token for token, weight in zip(one.tokens, one.streams["weight"], strict=True) if weight]
        assert tokens[-1] == chat.turn_end and len(end) < len(tokens) < len(one.tokens)
