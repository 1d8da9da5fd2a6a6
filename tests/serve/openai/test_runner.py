"""The thread that owns the engine: order, limits, cancellation, failures, drains."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ingot.inference.engine import Engine
from ingot.inference.runner import FAILURES, Chunk, EngineRunner, Handle, NotTaking, QueueFull
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.inference.conftest import tiny_model
from tests.making.processes import wait_until
from tests.serve.openai.harness import PATIENCE, SlowEngine

PROMPT = [1, 2, 3, 4, 5]
LONG = Sampling(max_new_tokens=50, temperature=0)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model()


def expected(model: Transformer, sampling: Sampling = LONG) -> list[int]:
    [completion] = Engine(model, slots=1).complete([PROMPT], [sampling])
    return completion.tokens


async def collect(runner: EngineRunner, sampling: Sampling = LONG) -> list[Chunk]:
    handle = runner.submit(PROMPT, sampling)
    return [chunk async for chunk in handle.chunks()]


def test_tokens_arrive_in_an_event_loop(model: Transformer) -> None:
    """Many at once, each what the engine alone gives; one chunk a step, and the end comes with the last."""
    samplings = [Sampling(max_new_tokens=10 + number, temperature=1, seed=number) for number in range(12)]

    async def everything(runner: EngineRunner) -> list[list[Chunk]]:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*(collect(runner, sampling) for sampling in samplings))

    with EngineRunner(Engine(model, slots=4)) as runner:
        for chunks, sampling in zip(asyncio.run(everything(runner)), samplings, strict=True):
            assert [token for chunk in chunks for token in chunk.tokens] == expected(model, sampling)
            assert [chunk.finish for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
            assert all(len(chunk.tokens) == len(chunk.logprobs) == 1 for chunk in chunks)
        assert runner.open == 0 and runner.stats.active == 0


def test_a_thread_waits_for_the_end(model: Transformer) -> None:
    with EngineRunner(Engine(model, slots=2)) as runner:
        request = runner.submit(PROMPT, LONG).done.result(PATIENCE)
        assert (request.tokens, request.finish) == (expected(model), "length")


def test_an_idle_runner_sleeps(model: Transformer) -> None:
    with EngineRunner(Engine(model, slots=2)) as runner:
        runner.submit(PROMPT, LONG).done.result(PATIENCE)
        wait_until(lambda: not runner._inside)
        before = runner.stats.steps
        [thread] = [thread for thread in threading.enumerate() if thread is runner._thread]
        clock = time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
        time.sleep(0.3)
        assert time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) - clock < 0.01
        assert runner.stats.steps == before


def test_one_too_many_is_refused_until_a_place_is_free(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=1), limit=3) as runner:
        handles = [runner.submit(PROMPT, LONG) for _ in range(3)]
        with pytest.raises(QueueFull) as caught:
            runner.submit(PROMPT, LONG)
        assert 1 <= caught.value.retry_after <= 60
        handles[0].cancel()
        assert handles[0].done.result(PATIENCE).finish == "cancelled"
        assert runner.submit(PROMPT, LONG).done.result(PATIENCE).finish == "length"


def test_cancelling_frees_everything_at_once(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=2)) as runner:
        handles = [runner.submit(PROMPT, LONG) for _ in range(5)]
        wait_until(lambda: runner.stats.active == 2 and runner.stats.waiting == 3)
        for handle in handles:
            handle.cancel()
        assert [handle.done.result(PATIENCE).finish for handle in handles] == ["cancelled"] * 5
        wait_until(lambda: runner.stats.active == runner.stats.waiting == runner.stats.pages_used == 0)
        handles[0].cancel()  # a second time does nothing


def test_a_deadline_ends_a_request(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=2)) as runner:
        request = runner.submit(PROMPT, LONG, deadline=0.1).done.result(PATIENCE)
        assert request.finish == "deadline" and len(request.tokens) < 50


def test_what_the_engine_refuses_is_the_handles_error(model: Transformer) -> None:
    async def refused(runner: EngineRunner) -> None:
        async for _ in runner.submit([10**6], LONG).chunks():
            raise AssertionError("a token of a prompt that does not exist")

    with EngineRunner(Engine(model, slots=2)) as runner:
        with pytest.raises(IngotError, match="not in the vocabulary"):
            runner.submit([10**6], LONG).done.result(PATIENCE)
        with pytest.raises(IngotError, match="not in the vocabulary"):
            asyncio.run(refused(runner))
        assert runner.submit(PROMPT, LONG).done.result(PATIENCE).tokens == expected(model)


class Failing(Engine):
    """Fails at the steps whose numbers are in `bad`."""

    bad: frozenset[int] = frozenset()
    count = 0

    def step(self) -> None:
        self.count += 1
        if self.count in self.bad:
            raise RuntimeError(f"step {self.count} failed")
        super().step()


def test_a_failed_step_ends_its_requests_and_nothing_else(model: Transformer) -> None:
    engine = Failing(model, slots=2)
    engine.bad = frozenset({3})
    with EngineRunner(engine) as runner:
        first = [runner.submit(PROMPT, LONG) for _ in range(3)]
        for handle in first:
            with pytest.raises(RuntimeError, match="step 3"):
                handle.done.result(PATIENCE)
        assert runner.submit(PROMPT, LONG).done.result(PATIENCE).tokens == expected(model)
        assert runner.taking and runner.stats.pages_used == 0


def test_an_engine_that_keeps_failing_is_given_up(model: Transformer) -> None:
    engine = Failing(model, slots=2)
    engine.bad = frozenset(range(100))
    with EngineRunner(engine) as runner:
        for _ in range(FAILURES):
            with pytest.raises(RuntimeError):
                runner.submit(PROMPT, LONG).done.result(PATIENCE)
        assert not runner.taking
        with pytest.raises(NotTaking, match="has failed"):
            runner.submit(PROMPT, LONG)


def test_calls_run_between_two_steps_in_the_engines_thread(model: Transformer) -> None:
    """New weights half-way: the tokens carry the version that made them, and the request is not lost."""
    with EngineRunner(SlowEngine(model, slots=2)) as runner:
        handle = runner.submit(PROMPT, LONG)
        wait_until(lambda: runner.stats.generated_tokens >= 5)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        runner.call(lambda: runner.engine.update(state, 7))
        assert runner.call(threading.get_ident) == runner._thread.ident
        request = handle.done.result(PATIENCE)
        assert request.versions == sorted(request.versions) and set(request.versions) == {0, 7}
        assert request.tokens == expected(model)
        with pytest.raises(ZeroDivisionError):
            runner.call(lambda: 1 / 0)


def test_the_engine_stands_still_while_it_is_paused(model: Transformer) -> None:
    with EngineRunner(Engine(model, slots=2)) as runner:
        handle = runner.submit(PROMPT, Sampling(max_new_tokens=50, temperature=0))
        with runner.paused(PATIENCE) as engine:
            before = engine.stats.steps
            time.sleep(0.1)
            assert engine.stats.steps == before
        assert handle.done.result(PATIENCE).tokens == expected(model)


def test_an_engine_that_is_held_too_long_is_given_up(model: Transformer) -> None:
    """Waiting requests and the holder get an error, and no thread steps an engine that another may be changing."""
    with EngineRunner(Engine(model, slots=1)) as runner:
        handles: list[Handle] = []
        said = r"held for more than 0\.01 seconds"
        with pytest.raises(IngotError, match=said), runner.paused(PATIENCE, longest=0.01) as engine:
            handles += [runner.submit(PROMPT, LONG) for _ in range(2)]
            before = engine.stats.steps
            for handle in handles:
                assert isinstance(handle.done.exception(PATIENCE), IngotError)
            assert engine.stats.steps == before
        assert runner.open == 0 and not runner.taking
        with pytest.raises(NotTaking, match=said):
            runner.submit(PROMPT, LONG)


def test_what_was_running_when_the_engine_was_held_too_long_ends(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=1)) as runner:
        handle = runner.submit(PROMPT, LONG)
        wait_until(lambda: runner.stats.generated_tokens >= 2)
        with pytest.raises(IngotError, match="held for more"), runner.paused(PATIENCE, longest=0.01):
            assert isinstance(handle.done.exception(PATIENCE), IngotError)


class Stuck(Engine):
    """Its steps wait for `go_on`."""

    go_on: threading.Event

    def step(self) -> None:
        assert self.go_on.wait(PATIENCE)
        super().step()


def test_a_step_that_does_not_end_cannot_be_paused(model: Transformer) -> None:
    engine = Stuck(model, slots=1)
    engine.go_on = threading.Event()
    with EngineRunner(engine) as runner:
        handle = runner.submit(PROMPT, LONG)
        wait_until(lambda: bool(runner._inside))
        with pytest.raises(IngotError, match=r"step has not ended within 0\.01 seconds"), runner.paused(0.01):
            raise AssertionError("the engine was handed out in the middle of a step")
        engine.go_on.set()
        assert handle.done.result(PATIENCE).tokens == expected(model)  # the pause that came too late holds no request


def test_a_drain_lets_what_runs_come_to_its_end(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=1)) as runner:
        handles = [runner.submit(PROMPT, Sampling(max_new_tokens=10, temperature=0)) for _ in range(3)]
        assert runner.drain(PATIENCE)
        assert [handle.done.result(0).finish for handle in handles] == ["length"] * 3
        with pytest.raises(NotTaking):
            runner.submit(PROMPT, LONG)


def test_a_drain_cuts_off_what_has_not_ended_in_time(model: Transformer) -> None:
    with EngineRunner(SlowEngine(model, slots=1)) as runner:
        handle = runner.submit(PROMPT, LONG)
        assert not runner.drain(0.05)
        assert handle.done.result(PATIENCE).finish == "cancelled"


def test_closing_ends_everyone(model: Transformer) -> None:
    runner = EngineRunner(SlowEngine(model, slots=1))
    handles = [runner.submit(PROMPT, LONG) for _ in range(3)]
    runner.close()
    assert [handle.done.result(0).finish for handle in handles] == ["cancelled"] * 3
    assert not runner._thread.is_alive()
    with pytest.raises(NotTaking):
        runner.submit(PROMPT, LONG)
    with pytest.raises(NotTaking):
        runner.call(lambda: None)


def test_a_consumer_that_leaves_frees_its_request(model: Transformer) -> None:
    async def leave(runner: EngineRunner) -> None:
        chunks = runner.submit(PROMPT, LONG).chunks()
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]

    with EngineRunner(SlowEngine(model, slots=1)) as runner:
        asyncio.run(leave(runner))
        wait_until(lambda: runner.open == 0 and runner.stats.pages_used == 0)


def test_a_loop_that_is_gone_does_not_hold_up_the_others(model: Transformer) -> None:
    async def abandon(runner: EngineRunner) -> None:
        runner.submit(PROMPT, LONG)

    with EngineRunner(SlowEngine(model, slots=2)) as runner:
        asyncio.run(abandon(runner))
        assert runner.submit(PROMPT, LONG).done.result(PATIENCE).tokens == expected(model)
        wait_until(lambda: runner.open == 0)


def test_requests_go_on_however_much_is_called(model: Transformer) -> None:
    """Calls that follow each other without a gap, as many clients that have texts scored make them."""
    ended = threading.Event()
    with EngineRunner(Engine(model, slots=2)) as runner:

        def again() -> None:
            if not ended.is_set():
                runner.begin(again)

        try:
            runner.call(again)
            assert runner.submit(PROMPT, LONG).done.result(PATIENCE).tokens == expected(model)
        finally:
            ended.set()


def test_a_visit_has_a_place_and_a_drain_waits_for_it(model: Transformer) -> None:
    with EngineRunner(Engine(model, slots=1), limit=1) as runner:
        with runner.visit():
            with pytest.raises(QueueFull):
                runner.submit(PROMPT, LONG)
            with pytest.raises(QueueFull), runner.visit():
                pass
            assert not runner.drain(0.01)
            assert runner.call(lambda: 7) == 7  # it may end its work
        assert runner.drain(PATIENCE) and runner.open == 0
        with pytest.raises(NotTaking), runner.visit():
            pass
