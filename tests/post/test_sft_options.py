"""Options of sft: what is learnt (beside TRL), sources with weights, batches in tokens, rows too long, and the store on disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from pydantic import ValidationError
from trl import SFTConfig, SFTTrainer

from ingot.optim.config import ScheduleConfig
from ingot.post.data.conversations.conversation_file import Dropped, Rendered, RowReading, render_row
from ingot.post.data.conversations.conversation_store import ConversationStore, StoreSource, write_store
from ingot.post.data.conversations.mixed_pool import MixedPool, weights_of_shares
from ingot.post.data.conversations.sft_source import ConversationSource
from ingot.post.sft import Sft, run
from ingot.post.sft_config import SftConfig
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
from tests.post.making import checkpoint_of, tiny_model
from tests.post.peers import PLAIN, llama, peer_tokenizer

USER = {"role": "user", "content": "1 + 2?"}
FIRST, SECOND = {"role": "assistant", "content": "3"}, {"role": "assistant", "content": "five"}
TALK = [USER, FIRST, {"role": "user", "content": "2 + 3?"}, SECOND]

WITHOUT_TRACES = (
    "{% for each in messages %}<|im_start|>{{ each.role }}\n{{ each.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def rendered(row: dict[str, Any], chat: ChatFormat, **options: Any) -> TokenSequence:
    (made,) = render_row("row", {"thinking": False, **row}, chat, RowReading(**options))
    assert isinstance(made, Rendered)
    (sequence,) = made.sequences
    return sequence


def learnt(sequence: TokenSequence, chat: ChatFormat) -> str:
    pairs = zip(sequence.tokens, sequence.streams["weight"], strict=True)
    return chat.tokenizer.decode([token for token, weight in pairs if weight])


@pytest.mark.parametrize(
    ("row", "learn", "options"),
    [
        ({"messages": TALK}, "assistant", {"assistant_only_loss": True}),
        ({"messages": TALK}, "everything", {"assistant_only_loss": False}),
        ({"prompt": TALK[:3], "completion": TALK[3:]}, "assistant", {"completion_only_loss": True}),
        ({"prompt": TALK[:3], "completion": TALK[3:]}, "assistant", {}),
    ],
)
def test_the_tokens_and_labels_are_trls(
    tokenizer: Tokenizer, chat: ChatFormat, tmp_path: Path, row: dict[str, Any], learn: Any, options: dict[str, Any]
) -> None:
    """TRL renders and masks by itself."""
    ours = rendered(row, chat, learn=learn)
    trainer = SFTTrainer(
        llama(tiny_model(tokenizer)),
        SFTConfig(output_dir=str(tmp_path), max_length=None, **options, **PLAIN),
        train_dataset=Dataset.from_list([row | {"chat_template_kwargs": {"enable_thinking": False}}]),
        processing_class=peer_tokenizer(tokenizer),
    )
    (theirs,) = list(trainer.train_dataset)
    batch = trainer.data_collator([theirs])
    labels = [token if weight else -100 for token, weight in zip(ours.tokens, ours.streams["weight"], strict=True)]
    count = len(ours.tokens)
    if "prompt" in row:  # TRL learns the line break behind the end of the last turn too, which no model is asked for
        newline = labels.index(-100, labels.index(ours.tokens[-2]))
        labels[newline] = batch["labels"][0][newline].item()
    assert theirs["input_ids"] == ours.tokens
    assert batch["labels"][0][:count].tolist() == labels


def test_what_is_learnt(chat: ChatFormat) -> None:
    end = "<|im_end|>"
    assert learnt(rendered({"messages": TALK}, chat), chat) == f"3{end}five{end}"
    assert learnt(rendered({"messages": TALK}, chat, learn="last"), chat) == f"five{end}"
    unlearnt = [USER, {**FIRST, "weight": 0}, *TALK[2:]]
    assert learnt(rendered({"messages": unlearnt}, chat), chat) == f"five{end}"
    everything = learnt(rendered({"messages": unlearnt}, chat, learn="everything"), chat)
    assert f"3{end}" not in everything
    assert "2 + 3?" in everything
    with pytest.raises(DataError, match="row: nothing of the conversation is learnt"):
        rendered({"messages": [USER, FIRST, USER, {**SECOND, "weight": 0}]}, chat, learn="last")


def test_only_the_end_of_thinking_is_learnt(chat: ChatFormat) -> None:
    """Hermes 4's second stage: </think> and the end of the turn, nothing of the trace or of the answer."""
    row = {"messages": [USER, {**FIRST, "thinking": "one two three"}], "thinking": True}
    sequence = rendered(row, chat, learn=("</think>",))
    assert learnt(sequence, chat) == "</think><|im_end|>"
    assert "one two three</think>3" in chat.tokenizer.decode(sequence.tokens)


def test_plain_rows_are_texts(chat: ChatFormat) -> None:
    ends = chat.tokenizer.piece(chat.tokenizer.end_of_text)
    text = rendered({"text": "a plain text"}, chat)
    assert chat.tokenizer.decode(text.tokens) == learnt(text, chat) == f"a plain text{ends}"
    pair = rendered({"prompt": "2 + 2 =", "completion": " 4"}, chat, form="plain")
    assert chat.tokenizer.decode(pair.tokens) == f"2 + 2 = 4{ends}"
    assert learnt(pair, chat) == f" 4{ends}"


def test_rows_that_are_too_long(chat: ChatFormat) -> None:
    row = {"messages": TALK, "thinking": False}
    whole = rendered(row, chat)
    longest = len(whole.tokens) - 4
    with pytest.raises(
        DataError, match=f"row: the conversation has {len(whole.tokens)} tokens, a row of this stage takes"
    ):
        rendered(row, chat, longest=longest)
    (left,) = render_row("row", row, chat, RowReading(longest=longest, too_long="leave_out"))
    assert isinstance(left, Dropped)
    (cut,) = render_row("row", row, chat, RowReading(longest=longest, too_long="cut"))
    assert isinstance(cut, Rendered)
    assert (cut.cut, cut.sequences[0].tokens) == (1, whole.tokens[:longest])
    prompt = whole.streams["weight"].index(1.0)  # of what is left nothing would be learnt
    (gone,) = render_row("row", row, chat, RowReading(longest=prompt, too_long="cut"))
    assert isinstance(gone, Dropped)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_store_holds_what_is_rendered(chat: ChatFormat, tmp_path: Path, workers: int) -> None:
    """In the rows' order, whatever the processes; bad rows are counted and shown."""
    numbers = range(700 if workers == 2 else 300)
    rows = [{"prompt": f"{number} + 1?", "completion": f"{number + 1}", "thinking": False} for number in numbers]
    rows[7] = {"prompt": 3}
    reading = RowReading(bad_rows="leave_out")
    placed = [(f"file:{number}", row, None) for number, row in enumerate(rows)]
    source = StoreSource("file", lambda: placed, reading)
    generated = {"tasks": [TokenSequence([5, 6, 7], {"weight": [0.0, 1.0, 0.0]})]}
    write_store(tmp_path / "store", [source], chat.tokenizer, generated, workers=workers)
    store = ConversationStore(tmp_path / "store")
    expected = [rendered(row, chat) for row in rows if "completion" in row] + generated["tasks"]
    assert [store[index] for index in range(len(store))] == [[each] for each in expected]
    assert store.report.sequences == [len(rows) - 1, 1]
    assert store.report.dropped == {"bad row": 1}
    assert store.report.examples[0].place == "file:7"
    assert store.report.learnt == sum(sum(each.streams["weight"]) for each in expected)


def counted(pool: MixedPool, passes: int) -> Counter[int]:
    return Counter(pool[index] for index in range(passes * pool.size))


def test_weights_are_how_often_a_conversation_comes() -> None:
    """Ten conversations once, four of weight 2.5, twenty of weight 0.3: the halves and the thirds take turns."""
    pool = MixedPool([10, 4, 20], [1.0, 2.5, 0.3], seed=3)
    assert pool.size == 10 + 10 + 6
    seen = counted(pool, 10)
    assert {seen[index] for index in range(10)} == {10}
    assert {seen[index] for index in range(10, 14)} == {25}
    assert {seen[index] for index in range(14, 34)} == {3}
    again = MixedPool([10, 4, 20], [1.0, 2.5, 0.3], seed=3)
    assert [again[index] for index in reversed(range(200))] == [pool[index] for index in reversed(range(200))]


def test_shares_of_a_pass() -> None:
    sizes, names = [100, 50, 850], ["a", "b", "tasks"]
    weights = weights_of_shares(sizes, [1.0, 1.0, 1.0], [0.2, None, None], names)
    drawn = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    assert drawn[0] / sum(drawn) == pytest.approx(0.2)
    assert weights[1:] == [1.0, 1.0]
    both = weights_of_shares(sizes[:2], [1.0, 1.0], [3 / 4, 1 / 4], names[:2])
    assert np.allclose(np.multiply(sizes[:2], both), [112.5, 37.5])
    with pytest.raises(RecipeError, match="shares of 1 leave nothing"):
        weights_of_shares(sizes, [1.0, 1.0, 1.0], [0.5, 0.5, None], names)


def begin(
    tokenizer: Tokenizer, place: Path, folder: StageFolder, rows: Sequence[dict[str, Any]], **options: Any
) -> ConversationSource:
    file = write_rows(place / "rows.jsonl", rows)
    given = {"steps": 4, "sequence_length": 100, "tasks": None, "files": [str(file)], **options}
    base = place / "base"
    checkpoint = base if base.is_dir() else checkpoint_of(tiny_model(tokenizer), base)
    return Sft(SftConfig.model_validate(given), {"checkpoint": checkpoint}, folder).source()


def test_batches_in_tokens_and_what_the_stage_says(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is as full as the next conversation allows; each conversation comes once a pass; a new source goes on."""
    rows = [
        {"prompt": "1 " * (number % 7), "completion": "2 " * (number % 5 + 1), "thinking": False}
        for number in range(40)
    ]
    folder, said = make_folder("sft"), list[str]()
    monkeypatch.setattr(folder.progress, "say", said.append)
    source = begin(tokenizer, tmp_path, folder, rows, batch_tokens=120)
    steps = [source.indices(step) for step in range(30)]
    sizes = [sum(source.store.length(index) for index in step) for step in steps]
    assert max(sizes) <= 120
    for size, following in zip(sizes, steps[1:], strict=False):
        assert size + source.store.length(following[0]) > 120
    flat = [index for step in steps for index in step]
    assert sorted(flat[:40]) == list(range(40))
    again = begin(tokenizer, tmp_path, folder, rows, batch_tokens=120)
    (one,), (other,) = source.batches(17)[0], again.batches(17)[0]
    assert torch.equal(one.tokens, other.tokens)
    text = "\n".join([*said, *source.describe(7)])
    assert f"{len(flat) / 30:,.0f} conversations" in text
    whole = sum(source.store.length(index) - 1 for index in range(40))
    assert f"a pass: 40 conversations, {whole:,} tokens, " in text and "7 steps are " in text
    assert "few steps a pass: a smaller batch_tokens gives more" in text
    assert source.indices(source.steps_of(2) - 1)[-1] in [source.mixture[item] for item in range(70, 90)]
    assert sum(map(len, steps[: source.steps_of(2)])) >= 80 > sum(map(len, steps[: source.steps_of(2) - 1]))


@pytest.mark.parametrize(("epochs", "steps"), [(1, 3), (2.5, 7)])
def test_epochs_are_passes_over_the_data(
    tokenizer: Tokenizer,
    tmp_path: Path,
    make_folder: Callable[[str], StageFolder],
    monkeypatch: pytest.MonkeyPatch,
    epochs: float,
    steps: int,
) -> None:
    """Five conversations, two a step; the rate falls to its end in the last of these steps."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "1", "completion": "2", "thinking": false}\n' * 5, encoding="utf-8")
    folder, said = make_folder("sft"), list[str]()
    monkeypatch.setattr(folder.progress, "say", said.append)
    given = {"epochs": epochs, "sequence_length": 32, "files": [str(file)], "batch_conversations": 2, "device": "cpu"}
    config = SftConfig.model_validate(given)
    run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder)
    assert [row["step"] for row in folder.metrics.read()] == list(range(steps))
    (of_pass,) = (line for line in said if line.startswith("a pass: "))
    assert re.fullmatch(
        rf"a pass: 5 conversations, \d+ tokens, 2\.5 steps; {steps} steps are [\d.]+ passes", of_pass
    ), of_pass
    with pytest.raises(RecipeError, match=f"{epochs:g} epochs are {steps} steps: the warmup"):
        run(config.model_copy(update={"schedule": ScheduleConfig(warmup=9)}), {"checkpoint": tmp_path / "base"}, folder)


def test_traces_for_a_template_that_has_none(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    """The error says which line, or that it is a generated task, and what to do."""
    trace = {"prompt": "1", "completion": "2", "thinking": False}, {"prompt": "1", "completion": "<think>3</think>2"}
    files = {name: data.replace(b"think>", b"idea>") for name, data in tokenizer.to_files().items()}
    tokenizer = Tokenizer.from_files(files, "a model without <think>")
    options = {"template": WITHOUT_TRACES}
    with pytest.raises(
        DataError, match=r"(?s)rows\.jsonl:2, message 1: a turn with traces, for .*ingot model grow"
    ) as file:
        begin(tokenizer, tmp_path, make_folder("sft"), trace, **options)
    tasks = {"weights": {"strings": 1}}
    with pytest.raises(
        DataError, match=r"(?s)generated tasks: strings-.*: a turn with traces.* or write tasks: null"
    ) as made:
        begin(tokenizer, tmp_path, make_folder("sft"), trace[:1], **options, tasks=tasks, sequence_length=400)
    assert all("--template ingot" in str(each.value) for each in (file, made))


def test_traces_that_the_template_leaves_out(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    """A model with <think>, and a template that prints no trace: an error, unless the traces are dropped on purpose."""
    rows = [{"prompt": "1", "completion": "2"}, {"prompt": "1", "completion": "<think>3 or so</think>2"}]
    told = r"(?s)rows\.jsonl:2, message 1: .* does not print the trace of this turn: '3 or so'.*write traces: drop"
    with pytest.raises(DataError, match=told):
        begin(tokenizer, tmp_path, make_folder("sft"), rows, template=WITHOUT_TRACES)
    for template in (WITHOUT_TRACES, None):  # with a template that prints them they are dropped too
        source = begin(tokenizer, tmp_path, make_folder("sft"), rows, template=template, traces="drop")
        without = begin(tokenizer, tmp_path, make_folder("sft"), rows[:1] * 2, template=template)
        assert [*source.store] == [*without.store]


def test_what_is_stored_is_read_again(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    """The same options find the store; an edited file, another form or another filter make a new one."""
    rows = [{"prompt": "Hi", "completion": "Ho"}]
    folder = make_folder("sft")

    def stores() -> list[str]:
        return sorted(path.name for path in folder.path.glob("sequences-*"))

    begin(tokenizer, tmp_path, folder, rows)
    first = stores()
    begin(tokenizer, tmp_path, folder, rows, steps=7)
    assert stores() == first
    assert len(first) == 1
    changes: list[dict[str, Any]] = [{"learn": "last"}, {"filters": ["repetition"]}, {"too_long": "cut"}]
    for number, change in enumerate(changes, start=2):
        begin(tokenizer, tmp_path, folder, rows, **change)
        assert len(stores()) == number
    begin(tokenizer, tmp_path, folder, [*rows, {"prompt": "Ho", "completion": "Hi"}])
    assert len(stores()) == 5


def test_options_that_cannot_be_meant() -> None:
    for wrong, problem in (
        ({"files": [{"file": "a", "weight": 2, "share": 0.5}]}, "either `weight` or `share`"),
        ({"files": [{"file": "a", "share": 0.5}], "file_share": 0.2}, "file_share is of all files together"),
        ({"filters": ["repetitoin"]}, "did you mean repetition"),
        ({"filters": [{"filter": "curate", "steps": [{"step": "fix_text"}]}]}, "rewrites texts"),
    ):
        with pytest.raises(ValidationError, match=problem):
            SftConfig.model_validate({"steps": 1, "sequence_length": 8, **wrong})
