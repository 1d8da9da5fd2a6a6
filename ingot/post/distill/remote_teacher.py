"""A teacher on a server with OpenAI's completions API, which is asked for the log-probabilities of token ids.

    log p of the tokens     {prompt: [ids], max_tokens: 0, echo, logprobs: 0}, from `logprobs.token_logprobs`
    k likeliest tokens      {prompt: [ids], max_tokens: 0, echo, prompt_logprobs: k}, from `prompt_logprobs`, which are by id

Ingot's own server and vLLM's answer both. Ids are sent and not text: a text that is encoded again may have other tokens. Whether
ids mean the same over there is checked once, by the pieces that the server shows for some of them. Requests that fail are tried
again (data/synthesize/writer.py); one that gets no answer in all its tries is an error, and the stage goes on from its last
checkpoint when it is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import torch

from ingot.data.synthesize.writer import TEXT, Endpoint
from ingot.post.barrier import Between
from ingot.post.distill.config import TeacherEndpointConfig
from ingot.post.distill.teacher import Teacher
from ingot.post.distill.top_tokens import Found, scored_places, share_likeliest
from ingot.post.processes import Processes
from ingot.tokens.batch import TokenSequence
from ingot.tokens.respell import Respeller
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError, RecipeError
from ingot.workspace.stage import StageFolder

POLL_SECONDS = 0.5  # between two looks for a stop, while answers are awaited
PROBED = 64  # tokens whose pieces are compared, spread over the vocabulary
LOWEST = -1e9  # stands where a server gives fewer tokens than it was asked for


class RemoteTeacher(Teacher):
    """A server; as many requests are on their way as its configuration says."""

    def __init__(
        self, name: str, config: TeacherEndpointConfig, tokenizer: Tokenizer, respeller: Respeller | None
    ) -> None:
        super().__init__(name, respeller)
        self.endpoint, self.tokenizer = Endpoint(config), tokenizer

    def logprobs(
        self, sequences: Sequence[TokenSequence], capacity: int, temperature: float, processes: Processes
    ) -> list[list[float]]:
        def ask(run: slice, between: Between) -> list[list[float]]:
            texts = [each.tokens for each in sequences[run]]
            replies = self._ask(texts, {"logprobs": 0}, between)
            return [self._own(tokens, reply) for tokens, reply in zip(texts, replies, strict=True)]

        return processes.share(len(sequences), ask)

    def with_likeliest(
        self,
        sequences: Sequence[TokenSequence],
        k: int,
        capacity: int,
        temperature: float,
        processes: Processes,
        folder: StageFolder | None = None,
    ) -> list[TokenSequence]:
        def find(part: Sequence[TokenSequence], between: Between) -> list[Found]:
            replies = self._ask([each.tokens for each in part], {"prompt_logprobs": k}, between)
            return [self._likeliest(each, reply, k) for each, reply in zip(part, replies, strict=True)]

        made_by = [self.endpoint.config.url, self.endpoint.config.model]
        return share_likeliest(find, made_by, sequences, k, processes, folder)

    def check(self) -> None:
        """Fail unless the server shows the same pieces for some ids as the tokenizer does."""
        size = self.tokenizer.vocabulary_size
        special = sorted(self.tokenizer.special.values())[:PROBED]
        ids = sorted({size * place // PROBED for place in range(PROBED)} | {*special, size - 1})
        ids = [id for id in ids if self.tokenizer.bytes_of_id[id]]
        (reply,) = self._ask([ids], {"logprobs": 0}, lambda: None)
        self._own(ids, reply)
        for id, shown in zip(ids, reply["logprobs"].get("tokens") or (), strict=False):
            piece = self.tokenizer.piece(id)
            whole = (
                shown and "\ufffd" not in f"{piece}{shown}"
            )  # some servers hide special tokens, and halves of characters
            if whole and piece.strip() != str(shown).strip():
                raise RecipeError(
                    f"token {id} is {piece!r} here and {shown!r} there",
                    place=f"distill.endpoints.{self.name}",
                    fix="give the tokenizer of the server's model: tokenizer: FOLDER",
                )

    def _ask(self, texts: Sequence[list[int]], more: dict[str, int], between: Between) -> list[dict[str, Any]]:
        """A reply for each text."""
        config = self.endpoint.config
        body = {"model": config.model, "max_tokens": 0, "echo": True, "temperature": 1.0, **more}
        with ThreadPoolExecutor(config.concurrency, thread_name_prefix="ingot-teacher") as threads:
            asked = [
                threads.submit(self.endpoint.first_choice, TEXT, {**body, "prompt": tokens}, number)
                for number, tokens in enumerate(texts)
            ]
            try:
                waiting = set(asked)
                while waiting:
                    between()
                    done, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                    if any(each.result() is None for each in done):
                        raise IngotError(
                            f"the teacher {self.name} gave no answer in {config.attempts} tries",
                            place=config.url,
                            fix="the same command goes on from the last checkpoint when the server answers again",
                        )
            finally:
                self.endpoint.stopped.set()
                threads.shutdown(wait=True, cancel_futures=True)
                self.endpoint.stopped.clear()
        return [each.result() or {} for each in asked]

    def _own(self, tokens: Sequence[int], reply: dict[str, Any]) -> list[float]:
        """log p of the tokens themselves."""
        values = (reply.get("logprobs") or {}).get("token_logprobs") or ()
        if len(values) != len(tokens) or any(value is None for value in values[1:]):
            raise self._unusable(f"{len(values)} log-probabilities for {len(tokens)} tokens")
        return [0.0, *(float(value) for value in values[1:])]

    def _likeliest(self, sequence: TokenSequence, reply: dict[str, Any], k: int) -> Found:
        """Its likeliest tokens where the sequence is learnt."""
        rows = reply.get("prompt_logprobs") or ()
        if len(rows) != len(sequence.tokens):
            raise self._unusable(f"prompt_logprobs of {len(rows)} tokens for {len(sequence.tokens)}")
        ids, values = list[list[int]](), list[list[float]]()
        for row, compared in zip(rows, scored_places(sequence), strict=True):
            if compared:
                pairs = sorted(((float(one["logprob"]), int(id)) for id, one in row.items()), reverse=True)[:k]
                pairs += [(LOWEST, 0)] * (k - len(pairs))
                values.append([value for value, _ in pairs])
                ids.append([id for _, id in pairs])
        return torch.tensor(ids, dtype=torch.int32).reshape(-1, k), torch.tensor(values).reshape(-1, k)

    def _unusable(self, problem: str) -> IngotError:
        return IngotError(
            f"the server answers with {problem}",
            place=self.endpoint.config.url,
            fix="use a server that scores the token ids of a prompt: `ingot serve`, or vLLM",
        )
