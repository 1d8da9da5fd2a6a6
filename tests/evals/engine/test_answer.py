"""All suites' requests through one engine, through its memory, and through a server: the answers are the same."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.tasks.no_think import NoThink
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.engine.answer import Answerer, measure_together
from ingot.evals.engine.local import LocalAnswerer, cut_at
from ingot.evals.engine.memory import AnswerMemory, RememberingEngine, model_name
from ingot.evals.engine.prompt import plain_text, split_tokens
from ingot.evals.engine.request import (
    Conversation,
    Generation,
    Likelihood,
    Likely,
    Passage,
    PlainText,
    Play,
    Question,
    Request,
    TokenLikelihood,
    Written,
)
from ingot.evals.engine.server import ServerAnswerer
from ingot.evals.engine.windows import windows
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError, IngotError, RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.evals.conftest import World
from tests.serve.openai.harness import serving

PASSAGE = "def main(): return the sum of the numbers, as they are."
TEXT_QUESTIONS: list[Request] = [
    Likelihood(Question("The sum of", shots=(("One and", "two"),)), answer) for answer in ("numbers", "a b", "return x")
]
ALL: list[Request] = [
    *TEXT_QUESTIONS,
    Passage(PASSAGE),
    Generation(PlainText("def main"), max_new_tokens=9),
    Generation(Question("The sum"), max_new_tokens=7, temperature=1.0),
    Generation(Question("The sum"), max_new_tokens=7, temperature=1.0, sample=1),
]


def subject_of(world: World, form: str = "text", **changes: Any) -> Subject:
    """The tiny world's model."""
    return Subject("tiny", form, StopSignal(), given_tokenizer=world.tokenizer, **changes)  # type: ignore[arg-type]


def ask(answerer: Answerer, subject: Subject, *rounds: Sequence[Request]) -> list[list[Any]]:
    """The answers to each round of requests."""
    found: list[list[Any]] = []

    def measuring() -> Generator[Sequence[Request], Sequence[Any], Measured]:
        for requests in rounds:
            answers = yield requests
            found.append(list(answers))
        return Measured()

    measure_together([(measuring(), subject)], answerer)
    return found


def local(world: World, memory: AnswerMemory | None = None, **options: Any) -> LocalAnswerer:
    engine = Engine(world.model, **{"slots": 4, "length": 128, **options})
    return LocalAnswerer(world.tokenizer, RememberingEngine(engine, memory or AnswerMemory(None)), StopSignal())


def forward(world: World, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
    """The log-probability by one pass over the whole text."""
    with torch.no_grad():
        logprobs = world.model(torch.tensor([[*context, *continuation]]))[0].double().log_softmax(-1)
    wanted = torch.tensor(list(continuation))
    rows = logprobs[len(context) - 1 : -1]
    return float(rows.gather(1, wanted[:, None]).sum()), bool((rows.argmax(-1) == wanted).all())


def test_likelihoods_equal_one_pass_over_the_text(world: World) -> None:
    ((*likely,),) = ask(local(world), subject_of(world), TEXT_QUESTIONS)
    for answer, found in zip(("numbers", "a b", "return x"), likely, strict=True):
        context, continuation = split_tokens(world.tokenizer, "One and two\n\nThe sum of", f" {answer}")
        logprob, greedy = forward(world, context, continuation)
        assert found == Likely(found.logprob, greedy, len(continuation))
        assert found.logprob == pytest.approx(logprob, abs=1e-4)


def test_in_a_conversation_the_answer_stands_alone(world: World) -> None:
    question = Question("The sum of", shots=(("One and", "two"),), description="Add.")
    ((found,),) = ask(local(world), subject_of(world, "chat", thinking=False), [Likelihood(question, "numbers")])
    messages = [Message("system", "Add."), Message("user", "One and"), Message("assistant", "two")]
    context = world.chat.prompt([*messages, Message("user", "The sum of")], thinking=False)
    continuation = world.tokenizer.encode("numbers")
    assert found.logprob == pytest.approx(forward(world, context, continuation)[0], abs=1e-4)
    assert found.tokens == len(continuation)


def test_a_trace_that_the_prompt_has_opened_is_no_answer(world: World) -> None:
    """As the templates of DeepSeek-R1 and QwQ open it: what is written up to `</think>` is thought, not said."""
    head, rest = (world.tokenizer.chat_template or "").rsplit('("" if', 1)
    tokenizer = Tokenizer(world.tokenizer.backend, f'{head}("<think>" if{rest}')
    engine = RememberingEngine(Engine(world.model, slots=4, length=128), AnswerMemory(None))
    subject = Subject("tiny", "chat", StopSignal(), given_tokenizer=tokenizer)
    asked = Generation(Question("The sum"), max_new_tokens=7)
    ((found,),) = ask(LocalAnswerer(tokenizer, engine, StopSignal()), subject, [asked])
    assert found.thinking and found.text == "" and found.message.problems[-1] == "</think> is missing"


def test_a_long_text_is_scored_in_windows(world: World) -> None:
    text = "the sum of the numbers " * 30
    tokens = world.tokenizer.encode(text)
    ((found,),) = ask(local(world, length=32), subject_of(world), [Passage(text)])
    pieces = windows(tokens, world.tokenizer.begin, 32)
    assert len(pieces) > 3 and found.tokens == len(tokens)
    expected = sum(forward(world, *piece)[0] for piece in pieces)
    assert found.logprob == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("count", "length"), [(1, 8), (8, 8), (9, 8), (16, 8), (17, 8), (100, 7), (5, 100)])
def test_windows_predict_every_token_once_with_as_much_context_as_fits(count: int, length: int) -> None:
    tokens = list(range(1, count + 1))
    found = windows(tokens, 0, length)
    assert [token for _, predicted in found for token in predicted] == tokens
    for number, (context, predicted) in enumerate(found):
        before = [0, *tokens][: tokens.index(predicted[0]) + 1]
        assert context == before[-len(context) :] and len(context) + len(predicted) <= length + 1
        assert number == 0 or len(context) + len(predicted) == length + 1  # filled from the left


def test_texts_are_greedy_stopped_and_repeatable(world: World) -> None:
    (texts,) = ask(local(world), subject_of(world), ALL[4:])
    engine = Engine(world.model, slots=1, length=128)
    ids = world.tokenizer.encode("def main")
    sampling = Sampling(max_new_tokens=9, temperature=0.0, stop_tokens=world.tokenizer.ends)
    (greedy,) = engine.complete([ids], [sampling])
    assert texts[0].text == world.tokenizer.decode(greedy.tokens) and texts[0].tokens == 9
    assert texts[1].text != texts[2].text  # two samples of one prompt
    assert ask(local(world, slots=1), subject_of(world), ALL[4:]) == [texts]  # whatever the batch
    stop = texts[0].text[4:6]
    ((cut,),) = ask(
        local(world), subject_of(world), [Generation(PlainText("def main"), max_new_tokens=9, stop=(stop,))]
    )
    assert cut.text == cut_at(texts[0].text, [stop]) and cut.finish == "stop"


def test_tokens_are_counted_while_no_answer_is_finished_yet(world: World) -> None:
    """Of texts, and of episodes, which are played in a single step of the answerer."""
    (task,) = NoThink().generate(0, 1, "test")
    play = Play(task, NoThink(), Limits(max_new_tokens=12, max_tokens=128, max_turns=1))
    for request in (Generation(PlainText("def main"), max_new_tokens=12), play):
        answerer, seen = local(world), list[tuple[int, int]]()

        def measuring(request: Request = request) -> Generator[Sequence[Request], Sequence[Any], Measured]:
            yield [request] * 2
            return Measured()

        def note(done: int, _: int, answerer: LocalAnswerer = answerer, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((done, answerer.tokens))

        measure_together([(measuring(), subject_of(world, "chat"))], answerer, note)
        meanwhile = [tokens for done, tokens in seen if done == 0]
        assert len(set(meanwhile)) > 5 and meanwhile == sorted(meanwhile) and seen[-1][0] == 2


def test_a_kill_loses_no_answer_that_was_kept(world: World, tmp_path: Path) -> None:
    path = tmp_path / "answers" / "model.jsonl"
    with AnswerMemory(path) as memory:
        first = local(world, memory)
        answers = ask(first, subject_of(world), ALL)
        assert first.policy.found == 0
    path.write_bytes(path.read_bytes()[:-20])  # killed while it wrote the last line
    with AnswerMemory(path) as memory:
        second = local(world, memory)
        assert ask(second, subject_of(world), ALL) == answers
        assert second.policy.found == len(ALL) - 1
        assert second.policy.engine.stats.prompt_tokens < 40  # only what the last line held
    with AnswerMemory(path) as memory:
        third = local(world, memory)
        assert ask(third, subject_of(world), ALL) == answers
        assert third.policy.engine.stats.prompt_tokens == 0


def test_other_weights_have_another_memory(world: World) -> None:
    name = model_name(Engine(world.model, slots=1, length=16))
    with torch.no_grad():
        world.model.embedding.weight[5, 5] += 0.001
    try:
        assert model_name(Engine(world.model, slots=1, length=16)) != name
    finally:
        with torch.no_grad():
            world.model.embedding.weight[5, 5] -= 0.001


def test_a_suite_of_many_rounds_does_not_hold_up_the_others(world: World) -> None:
    order: list[str] = []

    def measuring(name: str, rounds: int) -> Generator[Sequence[Request], Sequence[Any], Measured]:
        for number in range(rounds):
            answers = yield [Generation(PlainText(f"{name} {number}"), max_new_tokens=3)]
            assert isinstance(answers[0], Written)
        order.append(name)
        return Measured()

    subject = subject_of(world)
    measure_together([(measuring("long", 5), subject), (measuring("short", 1), subject)], local(world))
    assert order == ["short", "long"]


def test_after_an_error_nothing_stays_in_the_engine(world: World) -> None:
    closed: list[str] = []

    def waiting() -> Generator[Sequence[Request], Sequence[Any], Measured]:
        try:
            yield [Generation(PlainText("The"), max_new_tokens=60)]
        finally:
            closed.append("waiting")
        return Measured()

    def failing() -> Generator[Sequence[Request], Sequence[Any], Measured]:
        yield [Generation(PlainText("The"), max_new_tokens=2)]
        raise IngotError("this suite is broken", place="suite")

    answerer, subject = local(world), subject_of(world)
    with pytest.raises(IngotError, match="this suite is broken"):
        measure_together([(waiting(), subject), (failing(), subject)], answerer)
    assert closed == ["waiting"] and not answerer.policy.engine.busy


def test_what_cannot_be_asked_is_refused(world: World) -> None:
    with pytest.raises(DataError, match="adds no token"):
        ask(local(world), subject_of(world), [Likelihood(PlainText("The sum"), "")])
    with pytest.raises(RecipeError, match="needs a chat model"):
        plain_text(Conversation((Message("user", "x"),)))


def test_a_server_answers_as_the_engine_behind_it(world: World, tmp_path: Path) -> None:
    asked = ALL[:5]
    (here,) = ask(local(world), subject_of(world), asked)
    with serving(Engine(world.model, slots=4, length=128)) as running:
        config = EndpointConfig(url=f"{running.url}/v1", model="speaker", concurrency=3, timeout_seconds=60)
        subject = subject_of(world)
        (there,) = ask(ServerAnswerer(config, StopSignal(), tmp_path, world.tokenizer), subject, asked)
        (again,) = ask(ServerAnswerer(config, StopSignal(), tmp_path, world.tokenizer), subject, asked)
    assert again == there
    for mine, theirs in zip(here[:3], there[:3], strict=True):
        assert theirs == Likely(theirs.logprob, mine.greedy, mine.tokens)
        assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-3)
    ids = world.tokenizer.encode(PASSAGE)
    assert there[3].tokens == here[3].tokens - 1  # a server has nothing to score the first token by
    whole, _ = forward(world, ids[:1], ids[1:])
    assert there[3].logprob == pytest.approx(whole, abs=1e-3)
    assert there[4].text == here[4].text
    with pytest.raises(IngotError, match="no answer in 1 tries"):  # the server is gone
        gone = EndpointConfig(url=config.url, model="speaker", attempts=1)
        ask(ServerAnswerer(gone, StopSignal(), None, None), subject, asked[:1])
    with pytest.raises(RecipeError, match="a server does not take"):
        ask(ServerAnswerer(gone, StopSignal(), None, None), subject, [TokenLikelihood((1,), (2,))])
