"""Answers requests by a server with OpenAI's API: chat completions, completions, and the log-probabilities of an echoed prompt.

Likelihoods need a server that echoes prompts with log-probabilities (`echo` and `logprobs`: Ingot's own and vLLM's do); they
are of the server's own tokens. A request that got no answer in all its tries is an error: a score over what happened to be
answered would be no score. The first token of a passage is not scored: a server has nothing to score it by. Answers are
remembered by (server, model, request).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.data.synthesize.config import EndpointConfig
from ingot.data.synthesize.writer import CHAT, TEXT, Endpoint
from ingot.envs.rollout.endpoint import EndpointPolicy
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.evals.engine.answer import Answerer, RoutedRequest
from ingot.evals.engine.local import as_asked, cut_at, in_chat, together
from ingot.evals.engine.memory import AnswerMemory
from ingot.evals.engine.prompt import answer_text, as_conversation, plain_text
from ingot.evals.engine.request import (
    Generation,
    Likelihood,
    Likely,
    Passage,
    PlainText,
    Play,
    TokenLikelihood,
    Written,
)
from ingot.tokens.chat import ChatFormat
from ingot.tokens.openai_messages import from_reply, to_openai
from ingot.workspace.errors import IngotError, RecipeError

if TYPE_CHECKING:
    from ingot.evals.bases.suite import Subject
    from ingot.tokens.tokenizer import Tokenizer
    from ingot.workspace.interrupt import StopSignal

POLL_SECONDS = 0.02
Take = Callable[[dict[str, Any]], Any]  # what a choice of the server means


class ServerAnswerer(Answerer):
    """Answers with a server; as many requests are on their way as its configuration says."""

    def __init__(
        self, config: EndpointConfig, stop: StopSignal, answers: Path | None, tokenizer: Tokenizer | None
    ) -> None:
        self.config, self.stop, self.tokenizer = config, stop, tokenizer
        self.endpoint = Endpoint(config)
        name = hashlib.sha256(f"{config.url}/{config.model}".encode()).hexdigest()[:24]
        self.memory = AnswerMemory(None if answers is None else answers / f"{name}.jsonl")
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="ingot-evals")
        self._open: list[tuple[RoutedRequest, str, Take, Future[dict[str, Any] | None]]] = []
        self._plays: deque[list[RoutedRequest]] = deque()

    def begin(self, asked: Sequence[RoutedRequest]) -> None:
        plays: dict[tuple[object, ...], list[RoutedRequest]] = defaultdict(list)
        for each in asked:
            request = each.request
            if isinstance(request, Play):
                plays[together(request, each.subject)].append(each)
            elif isinstance(request, Generation):
                self._send(each, *self._generation(request, each.subject))
            else:
                self._send(each, *self._likelihood(request))
        self._plays.extend(plays.values())

    def step(self) -> None:
        self.stop.check()
        if self._plays:
            self._play(self._plays.popleft())
            return
        if self._open and not any(future.done() for *_, future in self._open):
            time.sleep(POLL_SECONDS)
        still = []
        for asked, key, take, future in self._open:
            if not future.done():
                still.append((asked, key, take, future))
                continue
            choice = future.result()
            if choice is None:
                raise IngotError(
                    f"the server gave no answer in {self.config.attempts} tries",
                    place=self.config.url,
                    fix="the same command goes on from here when the server answers again",
                )
            self.memory.keep(key, {"choice": choice})
            asked.give(take(choice))
        self._open = still

    def close(self) -> None:
        self.endpoint.stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.memory.__exit__(None, None, None)

    def _send(self, asked: RoutedRequest, path: str, body: dict[str, Any], take: Take) -> None:
        body = {"model": self.config.model, **body}
        key = hashlib.sha256(json.dumps([path, body], sort_keys=True).encode()).hexdigest()[:32]
        known = self.memory.find(key)
        if known is not None:
            asked.give(take(known["choice"]))
            return
        future = self._threads.submit(self.endpoint.first_choice, path, body, int(key[:8], 16))
        self._open.append((asked, key, take, future))

    def _generation(self, request: Generation, subject: Subject) -> tuple[str, dict[str, Any], Take]:
        body: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_new_tokens,
            "seed": (subject.seed + request.sample) % 2**31,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if not in_chat(request, subject):
            body["prompt"] = plain_text(request.prompt)
            return TEXT, body, partial(_written_text, request.stop)
        conversation = as_conversation(request.prompt)
        body["messages"] = to_openai(conversation.messages, thinking=False)
        if conversation.start:
            body["messages"].append({"role": "assistant", "content": conversation.start})
            body |= {"continue_final_message": True, "add_generation_prompt": False}  # as vLLM and SGLang call it
        if conversation.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in conversation.tools]
        if subject.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": subject.thinking}
        return CHAT, body, partial(_written_message, request.stop)

    def _likelihood(self, request: Likelihood | TokenLikelihood | Passage) -> tuple[str, dict[str, Any], Take]:
        if isinstance(request, TokenLikelihood) or (
            isinstance(request, Likelihood) and not isinstance(request.prompt, PlainText) and request.prompt.start
        ):
            raise RecipeError(
                "this suite gives tokens, which a server does not take", fix="measure a checkpoint with it"
            )
        if isinstance(request, Passage):
            context, text = "", request.text
        else:
            context = plain_text(request.prompt)
            text = context + answer_text(request.prompt, request.continuation)
            context = context.rstrip()
        body = {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0}
        return TEXT, body, partial(_likely, len(context))

    def _play(self, group: Sequence[RoutedRequest]) -> None:
        if self.tokenizer is None:
            raise RecipeError("episodes need a tokenizer", place=self.config.url, fix="give --tokenizer FOLDER")
        plays = [each.request for each in group if isinstance(each.request, Play)]
        with EndpointPolicy(self.config, ChatFormat(self.tokenizer)) as policy:
            episodes = rollout(
                [as_asked(each) for each in group],
                policy,
                policy.chat,
                {play.task.kind: play.environment for play in plays},
                drawing=Drawing(plays[0].temperature, plays[0].top_p, seed=group[0].subject.seed),
                limits=plays[0].limits,
                tools=plays[0].tools,
                between=self.stop.check,
            )
        for each, episode in zip(group, episodes, strict=True):
            each.give(episode)


def _written_text(stops: Sequence[str], choice: dict[str, Any]) -> Written:
    text = str(choice.get("text") or "")
    return Written(cut_at(text, stops), None, str(choice.get("finish_reason") or "stop"), len(text.split()))


def _written_message(stops: Sequence[str], choice: dict[str, Any]) -> Written:
    message = from_reply(choice.get("message") or {}, thinking=True)
    finish = str(choice.get("finish_reason") or "stop")
    words = len(f"{message.thinking or ''} {message.content}".split())  # the server's tokens are not known
    return Written(cut_at(message.content, stops), message.thinking, finish, words, message)


def _likely(context: int, choice: dict[str, Any]) -> Likely:
    """The tokens that begin at or after the end of the context; a token that the border cuts belongs to the continuation."""
    columns = choice.get("logprobs") or {}
    offsets, logprobs = columns.get("text_offset"), columns.get("token_logprobs")
    if not offsets or not logprobs or len(offsets) != len(logprobs):
        raise IngotError(
            "the server gives no log-probabilities of the prompt",
            place="completions with echo and logprobs",
            fix="use a server that echoes prompts (Ingot's, vLLM's), or suites that only write",
        )
    ends = [*offsets[1:], float("inf")]
    scored = [place for place, end in enumerate(ends) if end > context and logprobs[place] is not None]
    tops = columns.get("top_logprobs") or [None] * len(logprobs)
    greedy = all(not tops[place] or logprobs[place] >= max(tops[place].values()) - 1e-6 for place in scored)
    return Likely(sum(logprobs[place] for place in scored), greedy, len(scored))
