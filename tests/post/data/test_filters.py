"""Filters of conversations: on published files, beside other people's measures, and through the stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]

from ingot.data.steps.repeated_ngrams import RepeatedNgramsStep
from ingot.data.text.texts import Texts
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.conversation_filter import FILTERS
from ingot.post.data.conversations.row_forms import conversations_of
from ingot.post.data.filters.repetition import _most_in_a_row
from ingot.post.data.filters.scripts import script_of
from ingot.post.sft import Sft
from ingot.post.sft_config import SftConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.rows import read_rows, write_rows
from tests.post.making import checkpoint_of, tiny_model

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the published files are not here")


def talk(answer: str, /, **row: Any) -> Conversation:
    (found,) = conversations_of({"prompt": "Go on.", "completion": answer, **row})
    return found


def reason(entry: Any, conversation: Conversation) -> str | None:
    return FILTERS.read(entry).reason(conversation)


def test_every_filter_is_found_by_its_name() -> None:
    named = {name: kind.model_fields for name, kind in FILTERS.builtin().items()}
    assert list(named) == [
        *("accuracy", "curate", "identity", "incomplete_thoughts", "licence", "repetition", "scripts", "topics")
    ]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("<think>two and two</think>4", None),
        ("4", None),
        ("<think>two and two", "the thinking trace is not closed"),
        ("<think></think>4", "an empty thinking trace"),
        ("<think>two and two</think>", "a thinking trace without an answer"),
        ("<think>two</think>4 <think>or five</think>", "a stray tag of thinking"),
        ("two and two</think>4", "a stray tag of thinking"),
    ],
)
def test_incomplete_thoughts(answer: str, found: str | None) -> None:
    assert reason("incomplete_thoughts", talk(answer)) == found


@needs_data
def test_a_stray_tag_in_a_published_file() -> None:
    """Two rows of LLaMA-Factory's demo have a tag of thinking inside their text, and only these are dropped."""
    rows = read_rows(DATA / "llamafactory_demo/reason_tool_use_demo_50.jsonl.gz")
    tagged = ["think>" in json.dumps([turn for turn in row["messages"] if turn["role"] == "assistant"]) for row in rows]
    dropped = [reason("incomplete_thoughts", each) is not None for row in rows for each in conversations_of(row)]
    assert dropped == tagged
    assert sum(dropped) == 2


@pytest.mark.parametrize(
    ("answer", "claimed"),
    [
        ("I am ChatGPT, a large language model trained by OpenAI.", True),
        ("I'm Claude, made by Anthropic.", True),
        ("As an AI language model developed by OpenAI, I cannot do that.", True),
        ("<think>I am Qwen, so</think>Hello", True),
        ("That is against OpenAI's use policies.", True),
        ("As of my last knowledge update in September 2021, it was open.", True),
        ("My knowledge cutoff is 2023.", True),
        ("OpenAI released GPT-4 in March 2023.", False),
        ("I am a bard, and I sing of llamas.", False),
        ("The model was trained by OpenAI on books.", False),
        ("The last update of the page was in 2021.", False),
    ],
)
def test_identity(answer: str, claimed: bool) -> None:
    assert (reason("identity", talk(answer)) is not None) == claimed


@needs_data
def test_repetition_finds_the_loops_of_published_rows() -> None:
    """Of 1,299 published conversations two loop, as one sees: 53 equal words, and 138 equal sentences, in a row."""
    folder = DATA / "llamafactory_demo"
    rows = read_rows(folder / "kto_en_demo.jsonl.gz") + read_rows(folder / "alpaca_en_demo.jsonl.gz")
    found = [reason("repetition", each) for row in rows for each in conversations_of(row)]
    assert [each for each in found if each] == [
        "1 words 53 times in a row",
        "138 times in a row: '*giggle* Ooh ooh ah ah'",
    ]


def test_repetition_of_sentences_and_paragraphs() -> None:
    said = "So we look again at the table."
    prose = " ".join(f"Number {number} is next to the wall." for number in range(60))
    assert reason("repetition", talk(prose)) is None
    assert reason("repetition", talk(f"{said} " * 3)) is None
    assert "4 times in a row" in str(reason("repetition", talk(f"{said} " * 4)))
    assert reason("repetition", talk("x_1 = x_2 + 1 then. " * 5)) is None  # mathematics repeats by nature
    apart = "\n\n".join(f"{said}\n\nStep {number} is another one." for number in range(10))
    assert "10 times" in str(reason("repetition", talk(apart)))


def test_words_in_a_row_are_counted_as_in_curation() -> None:
    """The same numbers as the step `repeated_ngrams`, which has them from a kernel over whole columns."""
    texts = ["a b c " * 40, "x " * 33 + "y", "one two one two two one", "a b c d " * 7 + "a b c"]
    expected = RepeatedNgramsStep().measure(Texts.of(texts))["_repetitions"]
    ours = [max(_most_in_a_row(text.split(), size, 1) for size in range(1, 14)) for text in texts]
    assert ours == expected.tolist() == [40, 33, 2, 7]


@needs_data
def test_scripts_are_those_of_unicode() -> None:
    """Every letter of 529 languages' Declaration of Human Rights, beside the property `Script` that `regex` has."""
    scripts = {
        "LATIN": "Latin",
        "CYRILLIC": "Cyrillic",
        "CJK": "Han",
        "ARABIC": "Arabic",
        "GREEK": "Greek",
        "THAI": "Thai",
    }
    letters = {letter for row in read_rows(DATA / "udhr/udhr.jsonl.gz") for letter in row["text"] if letter.isalpha()}
    assert len(letters) > 3000
    for ours, theirs in scripts.items():
        pattern = regex.compile(rf"\p{{Script={theirs}}}")
        found = {letter for letter in letters if script_of(letter) == ours}
        expected = {letter for letter in letters if pattern.match(letter)}
        assert found ^ expected <= {"ª", "º", "々", "〇", "ـ", "µ", "ˈ"}, theirs


def test_scripts() -> None:
    assert reason("scripts", talk("The word is 水.")) == "10% of the letters are CJK"
    assert reason("scripts", talk("The angle is α, so that cos α = 0.5 and the word ends.")) is None
    assert reason({"filter": "scripts", "allowed": ["cjk"]}, talk("水 is water")) == "88% of the letters are LATIN"


@needs_data
def test_accuracy_on_gsm8k() -> None:
    """GSM8K's own solutions are right by its own answers, and wrong by those of the next problem."""
    rows = read_rows(DATA / "gsm8k/train.jsonl.gz")[:200]
    for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
        final = row["answer"].rpartition("#### ")[2]
        assert reason("accuracy", talk(row["answer"], answer=final)) is None
        if final != other["answer"].rpartition("#### ")[2]:
            assert reason("accuracy", talk(row["answer"], answer=other["answer"])) is not None


@needs_data
def test_accuracy_by_instructions() -> None:
    """GPT-4's answers to IFEval's prompts: those that follow every instruction stay (the paper's table: 76.9 % of all 541)."""
    prompts = {row["key"]: row for row in read_rows(DATA / "ifeval/ifeval_dev.jsonl.gz")}
    answers = {row["prompt"]: row["response"] for row in read_rows(DATA / "ifeval/gpt4_responses_dev.jsonl.gz")}
    entry = FILTERS.read({"filter": "accuracy", "verifier": "instructions"})
    some = list(prompts.values())[:60]
    kept = [entry.reason(talk(answers[row["prompt"]], **{**row, "prompt": "?"})) is None for row in some]
    assert 0.6 < sum(kept) / len(kept) < 0.9


def test_accuracy_by_a_function_and_unknown_answers(tmp_path: Path) -> None:
    code = tmp_path / "checks.py"
    code.write_text("def short(answer, row):\n    return len(answer) < row['most']\n", encoding="utf-8")
    entry = {"filter": "accuracy", "verifier": f"{code}:short"}
    assert reason(entry, talk("yes", most=5)) is None
    assert reason(entry, talk("certainly", most=5)) == "a wrong answer"
    assert reason("accuracy", talk("4")) is None
    assert reason({"filter": "accuracy", "unknown": "drop"}, talk("4")) == "no column answer"
    assert reason({"filter": "accuracy", "verifier": "text"}, talk(" Paris\n", answer="Paris")) is None


def test_licence_and_topics() -> None:
    assert reason("licence", talk("x", license="apache-2.0")) is None
    assert reason("licence", talk("x", license="CC-BY-NC-4.0")) == "licence CC-BY-NC-4.0"
    assert reason("licence", talk("x", licence="MIT OR GPL-3.0-only")) is None
    assert reason("licence", talk("x")) == "no licence"
    assert reason({"filter": "topics", "without": ["gambl*"]}, talk("Gambling is a risk")) == "on the topic 'Gambling'"
    assert reason({"filter": "topics", "only": ["chess"]}, talk("Take the rook")) == "on none of the topics"
    assert reason({"filter": "topics", "only": ["rook"]}, talk("Take the rook")) is None


def test_the_stage_counts_and_shows_what_it_drops(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    """Copies, near copies and an eval's question by the steps of curation, a filter of somebody's own, and the built-in ones."""
    text = "the quick brown fox jumps over the lazy dog while seven small birds watch from a very old wooden fence"
    words = text.split()
    near = [" ".join(words[start:] + words[:start]) for start in range(5)]  # nearly the same shingles
    eval_question = (
        "Natalia sold clips to forty eight of her friends in April and half as many clips in May how many in all"
    )
    answers = [*near, "short", "short", "I am ChatGPT.", "<think>so", "shout LOUD"]
    rows = [{"prompt": "Say it.", "completion": answer} for answer in answers]
    rows.append({"prompt": eval_question, "completion": "72"})
    file, evals, code = (tmp_path / name for name in ("rows.jsonl", "evals.jsonl", "mine.py"))
    write_rows(file, rows)
    evals.write_text(json.dumps({"text": eval_question}), encoding="utf-8")
    code.write_text(
        "from ingot.post.data.conversations.conversation_filter import ConversationFilter\n\n\n"
        "class Loud(ConversationFilter):\n"
        "    def reason(self, conversation):\n"
        "        loud = [word for word in conversation.text.split() if word.isupper()]\n"
        "        return f'loud: {loud[0]}' if loud else None\n",
        encoding="utf-8",
    )
    steps = [
        {"step": "exact_dedup"},
        {"step": "near_dedup", "min_jaccard": 0.5, "bands": 30, "rows": 3},
        {"step": "decontaminate", "against": [str(evals)]},
    ]
    config = SftConfig.model_validate(
        {
            "steps": 1,
            "sequence_length": 120,
            "tasks": None,
            "files": [str(file)],
            "filters": [
                {"filter": "curate", "steps": steps, "workers": 1},
                "identity",
                "incomplete_thoughts",
                f"{code}:Loud",
            ],
        }
    )
    folder = make_folder("sft")
    source = Sft(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder).source()
    report = source.store.report
    assert report.dropped == {"identity": 1, "incomplete_thoughts": 1, "Loud": 1, "curate": 6}
    assert report.rows == 2  # rows of which something is left
    shown = read_rows(folder.path / "dropped.jsonl")
    reasons = " ".join(each["reason"] for each in shown)
    for rule in ("exact_dedup", "near_dedup", "decontaminate", "loud: LOUD", "says 'I am ChatGPT'"):
        assert rule in reasons
    places = {each["place"] for each in shown if each["by"] == "curate"}
    assert f"{file}:7" in places
    assert f"{file}:11" in places
