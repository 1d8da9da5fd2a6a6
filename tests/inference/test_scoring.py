"""Scores of given tokens, against transformers and against the full forward pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.checkpoints.families.table import write_config
from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import CheckFailed, IngotError
from tests.checkpoints.whole import written_tensors
from tests.inference.conftest import VOCABULARY, mixed_config, tiny_config, tiny_model

CONTEXTS, CHOICES = 6, 4


def questions(seed: int, longest: int = 40) -> list[tuple[list[int], list[int]]]:
    """Contexts with several continuations each: what choices of a question look like."""
    generator = random.Random(seed)

    def draw(most: int) -> list[int]:
        return [generator.randrange(VOCABULARY) for _ in range(generator.randint(1, most))]

    return [(context, draw(12)) for context in (draw(longest) for _ in range(CONTEXTS)) for _ in range(CHOICES)]


def run(engine: Engine, requests: list[Request]) -> None:
    """Step until all have ended."""
    for _ in range(1000):
        if all(request.finish is not None for request in requests):
            return
        engine.step()
    raise AssertionError("the engine did not come to an end")


def expected_scores(logits: torch.Tensor, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """Sum of log-probabilities and whether all are the likeliest, from logits of the whole text."""
    logprobs = logits.double().log_softmax(-1)[len(context) - 1 : -1]
    wanted = torch.tensor(continuation)
    return float(logprobs.gather(1, wanted[:, None]).sum()), bool((logprobs.argmax(-1) == wanted).all())


@pytest.mark.parametrize("make_config", [tiny_config, mixed_config])
@pytest.mark.parametrize(("chunk", "page"), [(None, 16), (5, 16), (None, 4)])
def test_scores_equal_the_full_forward_pass(
    make_config: Callable[[], ModelConfig], chunk: int | None, page: int
) -> None:
    model = tiny_model(make_config())
    engine = Engine(model, slots=3, length=64, chunk=chunk, page=page)
    asked = questions(seed=1)
    sampled = engine.submit([1, 2, 3], Sampling(max_new_tokens=20, temperature=0.0))  # in the same batch
    requests = [engine.submit_scoring(context + more, len(context)) for context, more in asked]
    run(engine, [*requests, sampled])
    for (context, more), request in zip(asked, requests, strict=True):
        assert request.scoring is not None and request.finish == "scored"
        with torch.no_grad():
            logprob, greedy = expected_scores(model(torch.tensor([context + more]))[0], context, more)
        ((found, likeliest),) = request.scoring.result()
        assert found == pytest.approx(logprob, abs=1e-4) and likeliest == greedy
    assert len(sampled.tokens) == 20
    assert not engine.busy


@pytest.mark.parametrize(("page", "shared"), [(16, 16), (4, 28)])
def test_choices_share_whole_pages_of_their_context(page: int, shared: int) -> None:
    """Of 30 tokens of context the last predicts the answer, and is read for each choice."""
    engine = Engine(tiny_model(tiny_config()), slots=4, length=64, page=page)
    context = list(range(30))
    run(engine, [engine.submit_scoring([*context, 40 + choice, 50], 30) for choice in range(4)])
    assert engine.stats.shared_tokens == 3 * shared


def test_where_nothing_is_decoded_a_step_reads_more() -> None:
    """1,200 tokens in one step; while a request waits for its next token, no more than the chunk of 512."""
    model = tiny_model(tiny_config())
    texts = [[number % VOCABULARY, *range(59)] for number in range(20)]
    for busy, left in ((False, 0), (True, 12)):
        engine = Engine(model, slots=24, length=64)
        if busy:
            engine.submit([1, 2, 3], Sampling(max_new_tokens=20, temperature=0.0))
            engine.step()
        requests = [engine.submit_scoring(text, 50) for text in texts]
        engine.step()
        assert sum(request.finish is None for request in requests) == left


def test_scores_equal_transformers(model: Transformer) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    family, values = write_config(model.config)
    theirs = LlamaForCausalLM(LlamaConfig(**values | {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}))
    theirs.load_state_dict(written_tensors(family.layout(model.config), model.state_dict()), strict=False)
    theirs.tie_weights()
    asked, engine = questions(seed=2), Engine(model, slots=4, length=64)
    requests = [engine.submit_scoring(context + more, len(context)) for context, more in asked]
    run(engine, requests)
    for (context, more), request in zip(asked, requests, strict=True):
        with torch.no_grad():
            logits = theirs.eval()(torch.tensor([context + more])).logits[0]
        assert request.scoring is not None
        assert request.scoring.result()[0][0] == pytest.approx(expected_scores(logits, context, more)[0], abs=1e-4)


@pytest.mark.parametrize(("chunk", "batch"), [(None, 1), (5, 3)])
def test_each_token_and_the_likeliest_beside_it(model: Transformer, chunk: int | None, batch: int) -> None:
    """What `echo` and `prompt_logprobs` ask for, of texts read in parts and several at a time: by the whole forward pass."""
    engine = Engine(model, slots=4, length=64, chunk=chunk)
    texts = [context + more for context, more in questions(seed=3)[:batch]]
    asked = [engine.submit_scoring(text, 1, likeliest=3 + number) for number, text in enumerate(texts)]
    plain = engine.submit_scoring(texts[0], 1)
    run(engine, [*asked, plain])
    for number, (text, request) in enumerate(zip(texts, asked, strict=True)):
        with torch.no_grad():
            logprobs = model(torch.tensor([text]))[0].double().log_softmax(-1)[:-1]
        assert request.scoring is not None
        found = request.scoring.by_token()
        own = logprobs.gather(1, torch.tensor(text[1:])[:, None])[:, 0]
        assert [value for value, _ in found] == pytest.approx(own.tolist(), abs=1e-4)
        values, ids = logprobs.topk(3 + number)
        assert [[token for token, _ in likeliest] for _, likeliest in found] == ids.tolist()
        for (_, likeliest), expected in zip(found, values.tolist(), strict=True):
            assert [value for _, value in likeliest] == pytest.approx(expected, abs=1e-4)
    assert plain.scoring is not None
    assert [likeliest for _, likeliest in plain.scoring.by_token()] == [[]] * (len(texts[0]) - 1)


def test_a_greedy_text_is_the_likeliest_at_every_place(model: Transformer) -> None:
    engine = Engine(model, slots=2, length=64)
    (written,) = engine.complete([[5, 6, 7]], [Sampling(max_new_tokens=8, temperature=0.0)])
    other = [*written.tokens[:3], (written.tokens[3] + 1) % VOCABULARY, *written.tokens[4:]]
    requests = [engine.submit_scoring([5, 6, 7, *tokens], 3) for tokens in (written.tokens, other)]
    run(engine, requests)
    right, wrong = [request.scoring.result()[0] for request in requests if request.scoring]
    assert right[0] == pytest.approx(sum(written.logprobs), abs=1e-4) and right[1]
    assert wrong[1] is False


def test_letters_of_one_question_are_one_reading(model: Transformer) -> None:
    engine, context = Engine(model, slots=2, length=64), list(range(30))
    request = engine.submit_scoring([*context, 1], len(context), lasts=[1, 2, 3, 4])
    run(engine, [request])
    assert engine.stats.prompt_tokens == len(context) + 1
    with torch.no_grad():
        expected = model(torch.tensor([context]))[0, -1].log_softmax(-1)[[1, 2, 3, 4]]
    assert request.scoring is not None
    assert [logprob for logprob, _ in request.scoring.result()] == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_context_of_several_choices_is_read_once(model: Transformer) -> None:
    engine, context = Engine(model, slots=8, length=64), list(range(33))  # two whole pages and the token that predicts
    requests = [engine.submit_scoring([*context, choice, choice], len(context)) for choice in range(4)]
    run(engine, requests)
    assert [request.shared_tokens for request in requests] == [0, 32, 32, 32]


def test_the_last_token_needs_no_room(model: Transformer) -> None:
    engine, tokens = Engine(model, slots=2, length=16), list(range(17))
    request = engine.submit_scoring(tokens, 1)
    run(engine, [request])
    with torch.no_grad():
        logprob, _ = expected_scores(model(torch.tensor([tokens]))[0], tokens[:1], tokens[1:])
    assert request.scoring is not None and request.scoring.result()[0][0] == pytest.approx(logprob, abs=1e-4)


def test_after_an_interruption_scores_are_complete(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = Engine(model, slots=2, length=64, chunk=7), questions(seed=3)[:4]
    requests = [engine.submit_scoring(context + more, len(context)) for context, more in asked]
    for _ in range(3):
        engine.step()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("ingot.inference.engine.read_chunks", _interrupt)
            while True:
                engine.step()
    run(engine, requests)
    for (context, more), request in zip(asked, requests, strict=True):
        with torch.no_grad():
            logprob, _ = expected_scores(model(torch.tensor([context + more]))[0], context, more)
        assert request.scoring is not None and request.scoring.result()[0][0] == pytest.approx(logprob, abs=1e-4)


def _interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_what_cannot_be_scored_is_refused(model: Transformer) -> None:
    engine = Engine(model, slots=2, length=16)
    with pytest.raises(IngotError, match="score from 1 on"):
        engine.submit_scoring([1, 2, 3], 0)
    with pytest.raises(IngotError, match="18 tokens, the engine holds 17"):
        engine.submit_scoring([1] * 18, 3)
    with pytest.raises(IngotError, match="not in the vocabulary"):
        engine.submit_scoring([1, 2, 3], 1, lasts=[3, VOCABULARY])


def test_weights_that_are_not_numbers_are_reported(model: Transformer) -> None:
    with torch.no_grad():
        model.embedding.weight.fill_(float("nan"))
    engine = Engine(model, slots=2, length=16)
    request = engine.submit_scoring([1, 2, 3], 1)
    with pytest.raises(CheckFailed, match="not finite"):
        run(engine, [request])
