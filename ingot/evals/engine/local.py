"""Answers requests with an engine in this process: texts, likelihoods and episodes in one continuous batch.

Likelihoods are read in the order of their tokens, so that those which begin alike (worked examples, a question with several
choices) come one after the other and the engine reads the beginning once; choices that differ in their last token alone
(letters) are one reading. The engine is given a few hundred requests ahead of what it works on: the rest waits here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.evals.engine.answer import Answerer, RoutedRequest
from ingot.evals.engine.memory import Remembered, RememberingEngine, score_key
from ingot.evals.engine.prompt import answer_text, as_conversation, chat_tokens, plain_text, split_tokens, text_tokens
from ingot.evals.engine.request import (
    Conversation,
    Generation,
    Likelihood,
    Likely,
    Passage,
    PlainText,
    Play,
    Question,
    TokenLikelihood,
    Written,
)
from ingot.evals.engine.windows import windows
from ingot.inference.request import check_prompt
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    from ingot.envs.environment import Environment
    from ingot.envs.task import Task
    from ingot.evals.bases.suite import Subject
    from ingot.inference.request import Request
    from ingot.tokens.tokenizer import Tokenizer
    from ingot.workspace.interrupt import StopSignal

AHEAD = 4  # requests that the engine is given, for each of its slots


@dataclass(eq=False)
class _Sum:
    """The answer to a request that is scored in one or more pieces."""

    asked: RoutedRequest
    left: int
    logprob: float = 0.0
    greedy: bool = True
    tokens: int = 0

    def add(self, logprob: float, greedy: bool, tokens: int) -> None:
        self.logprob, self.greedy, self.tokens = self.logprob + logprob, self.greedy and greedy, self.tokens + tokens
        self.left -= 1
        if self.left == 0:
            self.asked.give(Likely(self.logprob, self.greedy, self.tokens))


@dataclass(eq=False)
class _Reading:
    """Tokens to read and score, for all requests that differ in the last token alone."""

    tokens: list[int]  # with one of the last tokens
    first: int
    lasts: dict[int, list[_Sum]] = field(default_factory=lambda: defaultdict(list))

    def give(self, scores: Sequence[tuple[float, bool]]) -> None:
        count = len(self.tokens) - self.first
        for (logprob, greedy), sums in zip(scores, self.lasts.values(), strict=True):
            for each in sums:
                each.add(logprob, greedy, count)


@dataclass(eq=False)
class _Text:
    """A text to write."""

    asked: RoutedRequest
    prompt: list[int]
    sampling: Sampling


class LocalAnswerer(Answerer):
    """Answers with the subject's engine."""

    def __init__(self, tokenizer: Tokenizer, policy: RememberingEngine, stop: StopSignal) -> None:
        self.tokenizer, self.policy, self.stop = tokenizer, policy, stop
        self.chat = ChatFormat(self.tokenizer) if self.tokenizer.chat_template is not None else None
        self._waiting: deque[_Text | _Reading] = deque()
        self._open: list[tuple[_Text | _Reading, Request | Remembered]] = []
        self._plays: deque[list[RoutedRequest]] = deque()
        self._ahead = AHEAD * policy.engine.slots
        self.cut = 0  # prompts that were too long

    @property
    def tokens(self) -> int:
        """Those that the engine has written."""
        return self.policy.engine.stats.generated_tokens

    def begin(self, asked: Sequence[RoutedRequest]) -> None:
        plays: dict[tuple[object, ...], list[RoutedRequest]] = defaultdict(list)
        readings: dict[tuple[tuple[int, ...], int], _Reading] = {}
        for each in asked:
            request = each.request
            if isinstance(request, Play):
                plays[together(request, each.subject)].append(each)
            elif isinstance(request, Generation):
                self._waiting.append(self._text(each, request))
            else:
                self._add_readings(each, self._pieces(request, each.subject), readings)
        by_tokens = sorted(readings.values(), key=lambda reading: reading.tokens)
        self._waiting.extend(by_tokens)
        self._plays.extend(plays.values())

    def step(self) -> None:
        if self._plays:
            self._play(self._plays.popleft())
        else:
            self._move()
            self.policy.step()
            self.stop.check()

    def close(self) -> None:
        for _, request in self._open:
            self.policy.cancel(request)
        self._open.clear()

    # ---- texts and likelihoods

    def _move(self) -> None:
        """Hand out what has ended, and give the engine more."""
        still = []
        for work, request in self._open:
            if request.finish is None:
                still.append((work, request))
            else:
                self._settle(work, request)
        self._open = still
        while self._waiting and len(self._open) < self._ahead:
            work = self._waiting.popleft()
            if isinstance(work, _Text):
                self._open.append((work, self.policy.submit(work.prompt, work.sampling)))
                continue
            known = self.policy.memory.find(score_key(work.tokens, work.first, tuple(work.lasts)))
            if known is not None:
                self.policy.found += 1
                work.give([(logprob, greedy) for logprob, greedy in known["scores"]])
            else:
                begun = self.policy.engine.submit_scoring(work.tokens, work.first, tuple(work.lasts))
                self._open.append((work, begun))

    def _settle(self, work: _Text | _Reading, request: Request | Remembered) -> None:
        if isinstance(work, _Text):
            work.asked.give(self._written(work, request))
            return
        assert not isinstance(request, Remembered) and request.scoring is not None
        scores = request.scoring.result()
        self.policy.memory.keep(score_key(work.tokens, work.first, tuple(work.lasts)), {"scores": scores})
        work.give(scores)

    def _text(self, asked: RoutedRequest, request: Generation) -> _Text:
        subject = asked.subject
        if in_chat(request, subject):
            chat = self._chat()
            prompt = chat_tokens(chat, as_conversation(request.prompt), subject.thinking is not False)
            stops = chat.stop_tokens
        else:
            prompt, stops = text_tokens(self.tokenizer, plain_text(request.prompt)), self.tokenizer.ends
        length = self.policy.engine.length
        room = min(request.max_new_tokens, length - 1)
        if isinstance(request.prompt, PlainText) or not prompt:
            check_prompt(prompt, length, self.tokenizer.vocabulary_size, f"prompt {asked.place}")
            room = min(request.max_new_tokens, max(1, length - len(prompt)))
        sampling = Sampling(
            max_new_tokens=room,
            temperature=request.temperature,
            top_p=request.top_p,
            stop_tokens=tuple(stops),
            stop_strings=request.stop,
            seed=_seed(subject.seed, prompt, request.sample),
        )
        return _Text(
            asked, prompt[-(self.policy.engine.length - room) :], sampling
        )  # cut from the left, as the harness does

    def _written(self, work: _Text, request: Request | Remembered) -> Written:
        tokens, finish = list(request.tokens), str(request.finish)
        stops = work.sampling.stop_strings
        assert isinstance(work.asked.request, Generation)
        if not in_chat(work.asked.request, work.asked.subject):
            ended = tokens and tokens[-1] in work.sampling.stop_tokens
            text = self.tokenizer.decode(tokens[:-1] if ended else tokens)
            return Written(cut_at(text, stops), None, finish, len(tokens))
        chat, conversation = self._chat(), as_conversation(work.asked.request.prompt)
        tools = [dict(tool) for tool in conversation.tools] or None
        message = chat.parse(tokens, in_thinking=chat.opens_trace(work.prompt), tools=tools)
        return Written(cut_at(message.content, stops), message.thinking, finish, len(tokens), message)

    def _chat(self) -> ChatFormat:
        if self.chat is None:
            self.chat = ChatFormat(self.tokenizer)  # which says what is missing
        return self.chat

    def _pieces(
        self, request: Likelihood | TokenLikelihood | Passage, subject: Subject
    ) -> list[tuple[list[int], list[int]]]:
        """Contexts and continuations, in tokens, that fit the engine."""
        length = self.policy.engine.length
        if isinstance(request, Passage):
            return windows(self.tokenizer.encode(request.text), self.tokenizer.begin, length)
        if isinstance(request, TokenLikelihood):
            context, continuation = list(request.context), list(request.continuation)
        elif in_chat(request, subject):
            context = chat_tokens(self._chat(), as_conversation(request.prompt), subject.thinking is not False)
            continuation = self.tokenizer.encode(request.continuation)
        else:
            text = plain_text(request.prompt)
            context, continuation = split_tokens(
                self.tokenizer, text, answer_text(request.prompt, request.continuation)
            )
        if not continuation:
            raise DataError(
                f"the continuation {getattr(request, 'continuation', '')!r} adds no token to its context",
                place=subject.name,
                fix="give a continuation that begins with a space or another word",
            )
        self.cut += len(context) + len(continuation) > length + 1
        tokens = [*context, *continuation][-(length + 1) :]  # cut from the left, as the harness does
        first = max(1, len(tokens) - len(continuation))
        return [(tokens[:first], tokens[first:])]

    def _add_readings(
        self,
        asked: RoutedRequest,
        pieces: Sequence[tuple[list[int], list[int]]],
        readings: dict[tuple[tuple[int, ...], int], _Reading],
    ) -> None:
        total = _Sum(asked, len(pieces))
        for context, continuation in pieces:
            tokens = [*context, *continuation]
            key = (tuple(tokens[:-1]), len(context))
            reading = readings.setdefault(key, _Reading(tokens, len(context)))
            reading.lasts[tokens[-1]].append(total)

    # ---- episodes

    def _play(self, group: Sequence[RoutedRequest]) -> None:
        """Episodes of one kind of sampling, while texts and likelihoods fill the rest of the batch."""
        plays = [each.request for each in group if isinstance(each.request, Play)]
        environments: dict[str, Environment] = {play.task.kind: play.environment for play in plays}
        episodes = rollout(
            [as_asked(each) for each in group],
            self.policy,
            self._chat(),
            environments,
            drawing=Drawing(plays[0].temperature, plays[0].top_p, seed=group[0].subject.seed),
            limits=plays[0].limits,
            tools=plays[0].tools,
            between=self._between,
        )
        for each, episode in zip(group, episodes, strict=True):
            each.give(episode)

    def _between(self) -> None:
        self.stop.check()
        self._move()
        if self.moved is not None:
            self.moved()


def cut_at(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def in_chat(request: Generation | Likelihood, subject: Subject) -> bool:
    """Whether it is asked in a conversation."""
    return isinstance(request.prompt, Conversation) or (isinstance(request.prompt, Question) and subject.form == "chat")


def as_asked(asked: RoutedRequest) -> Task:
    """The task, with or without thinking as the subject is measured."""
    assert isinstance(asked.request, Play)
    task, thinking = asked.request.task, asked.subject.thinking
    return task if thinking is None or task.thinking == thinking else replace(task, thinking=thinking)


def together(play: Play, subject: Subject) -> tuple[object, ...]:
    """What episodes must have in common to be played in one rollout."""
    return (subject.seed, play.limits, play.temperature, play.top_p, tuple(sorted(play.tools)))


def _seed(seed: int, prompt: Sequence[int], sample: int) -> int:
    digest = hashlib.sha256(f"{seed}/{sample}/{list(prompt)}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
