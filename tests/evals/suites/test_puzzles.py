"""Puzzles: solutions of the environments are right, another puzzle's are not, in one metric for each kind."""

from __future__ import annotations

import random

import pytest

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout
from ingot.evals.bases.suite import Measured
from ingot.evals.engine.request import Play
from ingot.evals.suites.puzzles import Puzzles
from ingot.tokens.chat import Message
from tests.envs.rollout.test_rollout import CHAT
from tests.evals.suites.asking import subject, values


def played(suite: Puzzles, wrong: bool) -> Measured:
    """Every puzzle answered with its own solution, or with one of its weaker answers."""
    measuring = suite.measure(subject(form="chat", given_tokenizer=CHAT.tokenizer, max_tokens=100_000))
    assert not isinstance(measuring, Measured)
    plays = [request for request in next(measuring) if isinstance(request, Play)]
    episodes: list[Episode] = []
    for play in plays:

        def script(episode: Episode, environment: Environment = play.environment) -> Message:
            if wrong:
                return environment.weaker(episode.task, random.Random(0))[0]
            return environment.solution(episode.task)[0]

        kinds = {play.environment.kind: play.environment}
        episodes += rollout([play.task], Scripted(script, CHAT), CHAT, kinds, limits=play.limits)
    try:
        measuring.send(episodes)
    except StopIteration as end:
        found: Measured = end.value
        return found
    raise AssertionError("it asks for more")


def test_solutions_and_others() -> None:
    pytest.importorskip("reasoning_gym", reason="needs reasoning-gym (pip install 'ingot[envs]')")
    kinds = {"zebra": 2, "countdown": 3, "knights_knaves": 2}
    suite = Puzzles(kinds=kinds, families={"gcd": 2, "word_sorting": 2}, max_new_tokens=50_000)
    names = {f"puzzles/{name}" for name in ("accuracy", *kinds, "gcd", "word_sorting")}
    right = played(suite, wrong=False)
    assert values(right) == dict.fromkeys(names, 1.0)
    assert len(right.samples) == 10 and right.metrics[0].estimate.count == 11
    assert values(played(suite, wrong=True))["puzzles/accuracy"] == 0
