"""A sampler in a thread: weights in flight, versions of tokens, which of them the trainer must agree with; the shared buffer."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from ingot.envs.episode_plain import from_plain
from ingot.inference.checksum import weights_checksum
from ingot.inference.quantised import pack
from ingot.inference.weights import in_precision
from ingot.post.policy import sequence_logprobs
from ingot.post.rl.checks.staleness import count_ages, present_tokens, staleness_metrics
from ingot.post.samplers.messages import (
    Beat,
    Cancel,
    Cancelled,
    Failed,
    Finished,
    Job,
    NewWeights,
    Ready,
    Taken,
)
from ingot.post.samplers.weights_buffer import WeightsBuffer
from ingot.post.samplers.worker import Gone, Sampler, SamplerConfig
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.device import FLOAT8
from ingot.workspace.errors import CheckFailed
from tests.post.making import SUMS, nudged, tiny_model

DEADLINE = 30.0
CPU = torch.device("cpu")


def make_config(tokenizer: Tokenizer, **options: Any) -> SamplerConfig:
    usual: dict[str, Any] = {"dtype": torch.float32, "devices": ("cpu",), "threads": 1, "tasks": SUMS, "tools": ()}
    usual |= {"seed": 1, "batch": 2, "steps": 1, "group": 2, "slots": 4, "length": 100}
    model = tiny_model(tokenizer).config
    return SamplerConfig(model=model, tokenizer=tokenizer, episode_seconds=60.0, **(usual | options))


@contextmanager
def running(config: SamplerConfig, weights: WeightsBuffer, kind: type[Sampler] = Sampler) -> Iterator[Connection]:
    """A sampler in a thread; the learner's end of its pipe."""
    near, far = multiprocessing.Pipe()

    def serve() -> None:
        with suppress(Gone):
            try:
                kind(far, config, weights).run()
            except CheckFailed as error:
                far.send(Failed(str(error)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield near
    finally:
        near.close()
        thread.join(DEADLINE)
        assert not thread.is_alive(), "a sampler whose pipe is closed ends"


def heard(pipe: Connection, kind: type[Any]) -> Any:
    """The next message of a kind."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if pipe.poll(0.1) and isinstance(message := pipe.recv(), kind):
            return message
    raise AssertionError(f"no {kind.__name__}")


def test_a_sampler_keeps_to_the_budget_of_a_kind(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer)
    weights = WeightsBuffer(model.config, torch.float32, CPU)
    with running(make_config(tokenizer, budgets={"no_think": 2}), weights) as pipe:
        heard(pipe, Ready)
        pipe.send(NewWeights(0, 0, weights.write(0, model.state_dict().items())))
        pipe.send(Job(0, 12))
        done = heard(pipe, Finished)
    assert max(from_plain(plain, None).sampled_count for plain in done.episodes) == 2  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of a CPU without bfloat16
def test_weights_in_float8(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner casts them once; a sampler has those bits, and samples as a model that was cast by itself."""
    monkeypatch.setattr(pack, "SMALLEST", 32)
    model = nudged(tiny_model(tokenizer), 0.05, seed=1)
    weights = WeightsBuffer(model.config, FLOAT8, CPU)
    sent = NewWeights(0, 0, weights.write(0, model.state_dict().items()))
    alone = in_precision(model, FLOAT8)
    assert sent.checksum == weights_checksum(alone) and len(weights.layout.packed) == 2 * 4
    plain = WeightsBuffer(model.config, torch.bfloat16, CPU)
    assert weights.layout.size < plain.layout.size
    with running(make_config(tokenizer, dtype=FLOAT8), weights) as pipe:
        heard(pipe, Ready)
        pipe.send(sent)
        assert heard(pipe, Taken).version == 0
        pipe.send(Job(0, 12))
        done = heard(pipe, Finished)
    apart = 0.0
    for episode in (from_plain(each, None) for each in done.episodes):  # type: ignore[arg-type]
        (segment,) = episode.segments
        wanted, full = (sequence_logprobs(one, [TokenSequence(segment.tokens())], 128)[0] for one in (alone, model))
        for place in [at for at, version in enumerate(segment.versions()) if version >= 0]:
            assert segment.logprobs()[place] == pytest.approx(wanted[place], abs=0.02)  # roundings of bfloat16
            apart = max(apart, abs(full[place] - wanted[place]))
    assert apart > 1e-3, "float8 is seen"


def test_weights_in_flight(tokenizer: Tokenizer) -> None:
    """Answers begun with one version go on with the next: each token has its version and the log-probability of its weights.

    Tokens of the second version that stand after keys and values of the first have neither model's; they are not `present`.
    """
    old = tiny_model(tokenizer)
    new = nudged(old, 0.05, seed=1)
    weights = WeightsBuffer(old.config, torch.float32, CPU)
    first = NewWeights(3, 0, weights.write(0, old.state_dict().items()))
    second = NewWeights(4, 1, weights.write(1, new.state_dict().items()))

    class Renewed(Sampler):
        """Gets its second weights and another job after ten tokens."""

        def _between(self) -> None:
            if self.engine.version == 3 and self.engine.stats.generated_tokens >= 10:
                self._take(second)
                self.jobs.append(Job(1, 8))
            super()._between()

    with running(make_config(tokenizer), weights, Renewed) as pipe:
        heard(pipe, Ready)
        pipe.send(first)
        assert heard(pipe, Taken).version == 3
        pipe.send(Job(0, 12))
        done = {each.number: each for each in (heard(pipe, Finished) for _ in range(2))}
    assert (done[0].began, done[1].began) == (3, 4)
    drift = 0.0
    for number, finished in done.items():
        for plain in finished.episodes:
            episode = from_plain(plain, None)  # type: ignore[arg-type]  # a task says nothing about tokens
            (segment,) = episode.segments
            tokens, versions, logprobs = segment.tokens(), segment.versions(), segment.logprobs()
            sampled = [one for one in versions if one >= 0]
            assert sampled == sorted(sampled) and set(sampled) == ({3, 4} if number == 0 else {4})
            by_old, by_new = (sequence_logprobs(model, [TokenSequence(tokens)], 128)[0] for model in (old, new))
            marks = present_tokens(episode, finished.began, 4)
            assert sum(marks) == (0 if number == 0 else len(sampled))
            for place, version in enumerate(versions):
                if version == 3:
                    assert logprobs[place] == pytest.approx(by_old[place], abs=1e-4)
                elif marks[place]:
                    assert logprobs[place] == pytest.approx(by_new[place], abs=1e-4)
                elif version == 4:
                    drift = max(drift, abs(logprobs[place] - by_new[place]))
    assert drift > 1e-3, "kept caches are of older weights"


def test_a_group_is_cancelled_in_play(tokenizer: Tokenizer) -> None:
    """Beats tell the oldest token of each group; one that is cancelled frees its slots, and the same task can come again."""
    model = tiny_model(tokenizer)
    weights = WeightsBuffer(model.config, torch.float32, CPU)
    made: list[Sampler] = []

    class Watched(Sampler):
        """Beats after four tokens of its first group, and reads at the same moment that it shall give that group up."""

        def _between(self) -> None:
            if not made and self.engine.stats.generated_tokens >= 4:
                made.append(self)
                self.beaten = 0.0
                pipe.send(Cancel(0))
                pipe.send(Job(1, 4))
            super()._between()

    with running(make_config(tokenizer, slots=2), weights, Watched) as pipe:
        pipe.send(NewWeights(3, 0, weights.write(0, model.state_dict().items())))
        heard(pipe, Taken)
        pipe.send(Job(0, 80))
        while not (beat := heard(pipe, Beat)).oldest:
            pass
        assert beat.oldest == {0: 3}
        assert heard(pipe, Cancelled).number == 0
        assert heard(pipe, Finished).number == 1
        pipe.send(Cancel(1))  # that has crossed with its end, and means nothing any more
        pipe.send(Job(1, 4))
        pipe.send(Job(0, 4))
        assert {heard(pipe, Finished).number for _ in range(2)} == {0, 1}
    (sampler,) = made
    assert not sampler.engine.busy and not sampler.began


def test_weights_that_arrive_otherwise_are_refused(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer)
    weights = WeightsBuffer(model.config, torch.float32, CPU)
    with running(make_config(tokenizer), weights) as pipe:
        pipe.send(NewWeights(0, 0, weights.write(0, model.state_dict().items()) + 1))
        assert "did not arrive as they were sent" in heard(pipe, Failed).problem


def test_the_buffer_holds_weights_in_the_precision_of_sampling(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer)
    buffer = WeightsBuffer(model.config, torch.bfloat16, CPU)
    other = nudged(model, 0.1, seed=2)
    sums = [buffer.write(slot, each.state_dict().items()) for slot, each in enumerate((model, other))]
    for slot, each in enumerate((model, other)):
        rounded = each.to(torch.bfloat16)
        assert sums[slot] == weights_checksum(rounded)
        assert all(torch.equal(view, rounded.state_dict()[name]) for name, view in buffer.read(slot).items())
    assert sums[0] != sums[1]


def test_ages() -> None:
    """Mean, largest and shares over tokens, and what updates on the batch add."""
    ages = {0: 6, 1: 3, 3: 1}
    assert staleness_metrics(ages, 0, 3) == {
        **{"staleness": 0.6, "staleness_max": 3.0},
        **{"staleness/0": 0.6, "staleness/1": 0.3, "staleness/2": 0.0, "staleness/3": 0.1},
    }
    assert staleness_metrics(ages, 2) == {"staleness": 2.6, "staleness_max": 5.0}
    assert count_ages([], 3) == {} and staleness_metrics({}, 1) == {"staleness": 1.0, "staleness_max": 1.0}
