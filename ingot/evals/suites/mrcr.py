"""MRCR, multi-round co-reference: a long conversation has the same request several times, and one reply is asked for again.

    user: Write a poem about otters.   assistant: …      (this pair 2, 4 or 8 times, with different replies, among others)
    user: Begin with x7Bq… and then repeat your 2nd poem about otters. Write nothing else.

The score is 0 unless the answer begins with the random letters; else it is how much both texts have in common, by
`difflib.SequenceMatcher.ratio` (format and score of openai/mrcr, 2025). Conversations are made by rule for each length in tokens
of the model; `files` takes the published rows (prompt, answer, random_string_to_prepend, n_needles) instead.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import fingerprints, need
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form, chat_tokens
from ingot.evals.engine.request import Conversation, Generation
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, spread
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import RecipeError

FORMS = ("poem", "short story", "letter", "riddle", "speech", "recipe", "news report", "diary entry")
TOPICS = ("otters", "rain", "old bridges", "tea", "winter", "maps", "a lighthouse", "bees", "trains", "the moon")
SUBJECTS = (
    "The gardener",
    "My neighbour",
    "A tired captain",
    "The youngest child",
    "Every traveller",
    "The baker",
    "An owl",
)
VERBS = ("remembers", "draws", "follows", "sells", "dreams of", "writes about", "waits for", "argues about", "repairs")
THINGS = (
    "a blue door",
    "seven lanterns",
    "the slow river",
    "broken clocks",
    "a quiet market",
    "wild mint",
    "paper boats",
)
ENDS = (
    "before dawn",
    "in the rain",
    "without a word",
    "as promised",
    "near the harbour",
    "for the third time",
    "by candlelight",
)
SENTENCES = (3, 7)
PREFIX_LETTERS = 12
END_TOKENS = 4  # of the answer's turn, beside its text


@dataclass(frozen=True)
class ReplyQuestion:
    """A conversation, the prefix that the answer begins with, and the reply that it repeats."""

    id: str
    messages: tuple[Message, ...]
    prefix: str
    reply: str
    copies: int

    def sample(self, text: str) -> Sample:
        """What of it and its answer people read."""
        right = score(text, self.reply, self.prefix) == 1
        return Sample(self.id, "mrcr", self.messages[-1].content, text, self.prefix + self.reply, right)


class Mrcr(Suite):
    """Multi-round co-reference: which of several equal requests was answered how."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    lengths: tuple[int, ...] = Field((4096,), min_length=1, description="tokens of the conversation, one score each")
    copies: tuple[Literal[2, 4, 8], ...] = Field((2, 4, 8), min_length=1, description="how often the same is asked for")
    count: int = Field(100, ge=1, description="conversations for each length and number of copies; --limit cuts it")
    files: tuple[str, ...] = Field((), description="published rows, instead of conversations made here")
    max_new_tokens: int = Field(512, ge=1, description="tokens of an answer at most; published replies are longer")

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured."""
        return fingerprints(self.files)

    def measure(self, subject: Subject) -> Measuring:
        """`mrcr/COPIES/LENGTH`, and `mrcr/score` over all."""
        groups = self.groups(subject)
        asked = [each for members in groups.values() for each in members]
        answers = yield [Generation(Conversation(each.messages), max_new_tokens=self.max_new_tokens) for each in asked]
        texts = {each.id: answer.text for each, answer in zip(asked, answers, strict=True)}
        metrics = [_metric("mrcr/score", asked, texts, "Co-reference, all")]
        for name, members in groups.items():
            metrics.append(_metric(f"mrcr/{name}", members, texts, f"Co-reference, {name}"))
        return Measured(metrics, [each.sample(texts[each.id]) for each in spread(asked)])

    def groups(self, subject: Subject) -> dict[str, list[ReplyQuestion]]:
        """The conversations by copies and length, or by copies as published."""
        groups: dict[str, list[ReplyQuestion]] = {}
        if self.files:
            for place, row in subject.some(rows_of(self.files, (), None, given=True, suite="mrcr")):
                copies = need(row, "n_needles", int, place)
                members = groups.setdefault(f"{copies}_needles", [])
                prefix = need(row, "random_string_to_prepend", str, place)
                turns = tuple(Message.from_dict(each) for each in json.loads(need(row, "prompt", str, place)))
                reply = need(row, "answer", str, place).removeprefix(prefix)
                members.append(ReplyQuestion(f"mrcr-{copies}-{len(members)}", turns, prefix, reply, copies))
            return groups
        count = min(self.count, subject.limit or self.count)
        size = ConversationSize.of(subject)
        for length in self.lengths:
            for copies in self.copies:
                subject.stop.check()
                groups[f"{copies}_needles/{length}"] = [
                    conversation(f"mrcr-{copies}-{length}-{number}", copies, length, size, subject.task_seed)
                    for number in range(count)
                ]
        return groups


def score(answer: str, reply: str, prefix: str) -> float:
    """How much of the reply the answer repeats; 0 without the prefix."""
    if not answer.startswith(prefix):
        return 0.0
    return SequenceMatcher(None, answer.removeprefix(prefix), reply).ratio()


@dataclass(frozen=True)
class ConversationSize:
    """Tokens of conversations: what the chat template puts around a question, and around each pair of turns before it."""

    tokenizer: Tokenizer
    question: int
    pair: int

    @classmethod
    def of(cls, subject: Subject) -> ConversationSize:
        """Measured on a short conversation."""
        tokenizer = subject.tokenizer
        chat, thinking = ChatFormat(tokenizer), subject.thinking is not False
        ask, reply = Message("user", "a"), Message("assistant", "a")
        alone, after = (len(chat_tokens(chat, Conversation(turns), thinking)) for turns in ((ask,), (ask, reply, ask)))
        one = len(tokenizer.encode("a"))
        return cls(tokenizer, alone - one, after - alone - 2 * one)

    def tokens(self, *texts: str) -> int:
        """Tokens of texts, each by itself."""
        return sum(len(self.tokenizer.encode(text)) for text in texts)


def conversation(name: str, copies: int, length: int, size: ConversationSize, seed: int) -> ReplyQuestion:
    """A conversation of at most so many tokens with its answer, a pure function of its name and the seed."""
    rng = random.Random(f"{name}/{seed}")
    form, topic = rng.choice(FORMS), rng.choice(TOPICS)
    replies = [_reply(rng, form, topic) for _ in range(copies)]
    which = rng.randrange(copies)
    prefix = "".join(rng.choices(string.ascii_letters + string.digits, k=PREFIX_LETTERS))
    wanted = f"your {ordinal(which + 1)} {form} about {topic}, word for word"
    question = f"Begin with {prefix} and then repeat {wanted}. Write nothing else."
    room = length - size.question - size.tokens(question, prefix + replies[which]) - END_TOKENS
    pairs = [(f"Write a {form} about {topic}.", reply) for reply in replies]
    room -= sum(size.pair + size.tokens(*pair) for pair in pairs)
    if room < 0:
        raise RecipeError(
            f"{copies} replies do not fit into {length} tokens", place="suite mrcr", fix="measure longer lengths"
        )
    others = [(each, about) for each in FORMS for about in TOPICS if (each, about) != (form, topic)]
    while room > 0:
        other, about = rng.choice(others)
        pair = (f"Write a {other} about {about}.", _reply(rng, other, about))
        room -= size.pair + size.tokens(*pair)
        if room >= 0:
            pairs.append(pair)
    rng.shuffle(pairs)
    # the copies keep the order in which they were made, wherever they stand
    left = iter(replies)
    ordered = [(asked, next(left) if asked == f"Write a {form} about {topic}." else reply) for asked, reply in pairs]
    turns = [Message(role, text) for pair in ordered for role, text in zip(("user", "assistant"), pair, strict=True)]  # type: ignore[arg-type]
    return ReplyQuestion(name, (*turns, Message("user", question)), prefix, replies[which], copies)


def _reply(rng: random.Random, form: str, topic: str) -> str:
    """A few sentences; the title makes replies of one kind look alike, as a model's own would."""
    lines = [
        f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(THINGS)} {rng.choice(ENDS)}."
        for _ in range(rng.randint(*SENTENCES))
    ]
    return f"A {form} about {topic}\n" + "\n".join(lines)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th … 8th."""
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }".replace(" ", "")


def _metric(name: str, members: Sequence[ReplyQuestion], texts: dict[str, str], label: str) -> Metric:
    units = {each.id: score(texts[each.id], each.reply, each.prefix) for each in members}
    return metric_of_units(name, units, label)
