"""Every rule with numbers that trip it and numbers that do not, and what is written when one does."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.record import RouterLoad
from ingot.train.guards.config import GuardsConfig
from ingot.train.guards.experts import IdleExperts
from ingot.train.guards.guards import EVENTS, Guards, Rewind
from ingot.train.guards.history import History
from ingot.train.guards.rules import RULES, StepView
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import read_jsonl
from tests.making.stages import Listener, stage_folder

WINDOW = 32
CONFIG = GuardsConfig(window=WINDOW)
GOOD = {
    "loss": 2.0,
    "cross_entropy": 2.0,
    "gradient_norm": 1.0,
    "loss_deviations": 1.0,
    "gradient_norm_deviations": 5.9,
    "seconds": 1.0,
    "tokens_per_second": 1000.0,
    "data_wait_share": 0.1,
    "checkpoint_stall": 0.0,
    "memory_gib": 1.0,
    "router/max_violation_worst": 4.9,
    "router/entropy_worst": 1.0,
    "router/idle_steps": 49.0,
}


def look(steps: list[Mapping[str, float]], ranks: int = 1, **changes: Any) -> dict[str, str]:
    """What each rule says after the last of these steps."""
    history = History(WINDOW)
    for metrics in steps:
        history.add(metrics)
    config = CONFIG.model_copy(update=changes)
    sight = StepView(steps[-1], history, config, vocabulary=100, ranks=ranks)
    said = {rule.name: rule.condition(sight) for rule in RULES}
    return {name: text for name, text in said.items() if text is not None}


def run(good: int = WINDOW, bad: int = 1, /, **numbers: float) -> list[Mapping[str, float]]:
    """Good steps, then some with other numbers."""
    steps: list[Mapping[str, float]] = [GOOD] * good
    return steps + [{**GOOD, **numbers}] * bad


def test_a_good_run_is_left_alone() -> None:
    assert look(run()) == {}
    assert look([GOOD]) == {}


@pytest.mark.parametrize(
    ("rule", "steps", "quiet", "words"),
    [
        (
            "not finite",
            run(loss=math.nan, z_loss=math.inf),
            run(z_loss=math.inf),
            "loss nan, gradient norm 1.0; also not finite: z_loss",
        ),
        ("not finite", run(gradient_norm=math.inf), run(gradient_norm=99.0), "gradient norm inf"),
        ("spike", run(loss=8.0, loss_deviations=6.1), run(loss=8.0), "loss 8 lies 6.1 deviations above the last steps"),
        ("spike", run(gradient_norm_deviations=6.1), run(gradient_norm_deviations=-9.0), "gradient norm 1 lies 6.1"),
        (
            "large gradient",
            run(gradient_norm=1001.0),
            run(gradient_norm=999.0),
            "gradient norm 1001 before clipping, limit 1000",
        ),
        (
            "growing gradient",
            run(WINDOW, 8, gradient_norm=4.1),
            run(WINDOW, 8, gradient_norm=3.9),
            "gradient norm 4.1 in the last 8 steps, 1 in",
        ),
        ("growing gradient", run(WINDOW, 8, gradient_norm=4.1), run(WINDOW, 4, gradient_norm=4.1), "4.1"),
        ("growing gradient", run(24, 8, gradient_norm=4.1), run(4, 8, gradient_norm=4.1), "4.1"),
        (
            "stuck",
            run(WINDOW, 32, cross_entropy=4.6),
            run(WINDOW, 32, cross_entropy=4.5),
            "still that of guessing, ln 100 = 4.605",
        ),
        ("stuck", run(0, 32, cross_entropy=4.6), run(0, 31, cross_entropy=4.6), "guessing"),
        ("memory growth", run(memory_gib=1.31), run(memory_gib=1.29), "1.31 GiB in use, 1.00 in the first steps"),
        ("memory growth", run(16, memory_gib=1.31), run(8, memory_gib=1.31), "1.31 GiB"),
        (
            "overloaded expert",
            run(WINDOW, 8, **{"router/max_violation_worst": 5.5}),
            run(WINDOW, 7, **{"router/max_violation_worst": 5.5}),
            "gets 6.5 times the mean load",
        ),
        (
            "dead expert",
            run(**{"router/idle_steps": 50.0}),
            run(**{"router/idle_steps": 49.0}),
            "an expert got no token for 50 steps",
        ),
        (
            "certain router",
            run(WINDOW, 8, **{"router/entropy_worst": 0.09}),
            run(WINDOW, 8, **{"router/entropy_worst": 0.11}),
            "entropy fell from 1 to 0.09 nats",
        ),
    ],
)
def test_a_rule_trips_exactly_where_it_should(
    rule: str, steps: list[Mapping[str, float]], quiet: list[Mapping[str, float]], words: str
) -> None:
    assert words in look(steps)[rule]
    assert rule not in look(quiet)


SLOW = {"seconds": 2.1, "tokens_per_second": 1000 / 2.1}


@pytest.mark.parametrize(
    ("where", "ranks", "cause"),
    [
        ({"data_wait_share": 1.2 / 2.1}, 1, "data wait (per step: data wait +1100 ms"),
        ({"data_wait_share": 0.1 / 2.1}, 1, "compute (per step: data wait +0 ms, checkpoint +0 ms, compute +1100 ms)"),
        ({"data_wait_share": 0.1 / 2.1}, 4, "compute, or communication with a slower rank"),
        ({"checkpoint_stall": 1.1, "data_wait_share": 0.1 / 2.1}, 1, "checkpoint (per step"),
    ],
)
def test_slow_names_the_likely_cause(where: dict[str, float], ranks: int, cause: str) -> None:
    said = look(run(WINDOW, 8, **SLOW, **where), ranks)["slow"]
    assert said.startswith("476 tokens/s, usually 1,000; likely cause: ")
    assert cause in said


def test_slow_is_silent_about_one_slow_step_and_about_a_little() -> None:
    assert "slow" not in look(run(seconds=6.0, tokens_per_second=1000 / 6))
    assert "slow" in look(run(seconds=12.0, tokens_per_second=1000 / 12, checkpoint_stall=11.0)), "half of eight steps"
    little = run(WINDOW, 8, seconds=1.9, tokens_per_second=1000 / 1.9)
    assert "slow" not in look(little)
    assert "slow" in look(little, slow_factor=0.6)
    assert "slow" not in look(run(4, 8, **SLOW)), "the window is not yet half full"


def test_experts_are_idle_in_a_row() -> None:
    experts = IdleExperts()

    def load(*choices: int) -> RouterLoad:
        return RouterLoad(torch.tensor(choices), torch.tensor(sum(choices)), torch.tensor(1.0))

    longest = [
        int(experts.count({0: load(1, 0, 3), 4: load(*other)})) for other in ((0, 2), (2, 0), (2, 0), (0, 2), (1, 1))
    ]
    assert longest == [1, 2, 3, 4, 5], "expert 1 of layer 0 never gets a token"
    again = IdleExperts()
    again.restore(experts.state())
    assert (
        int(again.count({0: load(1, 1, 0), 4: load(0, 1)}))
        == int(experts.count({0: load(1, 1, 0), 4: load(0, 1)}))
        == 1
    )


def guards(path: Path, listener: Listener, **changes: Any) -> Guards:
    config = GuardsConfig.model_validate({"window": WINDOW, **changes})
    return Guards(config, stage_folder(path, listener), None, torch.device("cpu"), vocabulary=100)


def test_what_happened_is_said_and_written(tmp_path: Path, listener: Listener) -> None:
    watching = guards(tmp_path, listener)
    watching.observe(3, {**GOOD, "gradient_norm": 2000.0}, data_step=5)
    (event,) = read_jsonl(tmp_path / EVENTS)
    assert event.pop("time") > 1e9
    assert event == {
        "step": 3,
        "data_step": 5,
        "rule": "large gradient",
        "reason": "clipping hides it; the direction of such a step is mostly noise",
        "action": "warn",
        "seen": "gradient norm 2000 before clipping, limit 1000",
    }
    assert listener.lines == ["step 3: large gradient: gradient norm 2000 before clipping, limit 1000; the run goes on"]


@pytest.mark.parametrize(("spike", "told"), [("warn", [70]), ("skip", [70, 71])])
def test_a_warning_is_not_repeated_for_a_window_but_every_action_is_told(
    spike: str, told: list[int], tmp_path: Path, listener: Listener
) -> None:
    watching = guards(tmp_path, listener, spike=spike)
    for step in range(2 * WINDOW):
        watching.observe(step, {**GOOD, "gradient_norm": 2000.0}, data_step=step)
    assert [event["step"] for event in read_jsonl(tmp_path / EVENTS)] == [0, WINDOW]
    for step in (70, 71):
        watching.observe(step, {**GOOD, "loss_deviations": 7.0}, data_step=step)
    assert [event["step"] for event in read_jsonl(tmp_path / EVENTS)] == [0, WINDOW, *told]


def test_rewinds_have_a_limit(tmp_path: Path, listener: Listener) -> None:
    watching = guards(tmp_path, listener, spike="rewind", rewinds=2)
    for step in (10, 20):
        with pytest.raises(Rewind) as caught:
            watching.observe(step, {**GOOD, "loss_deviations": 7.0}, data_step=step)
        assert caught.value.step == step
    with pytest.raises(CheckFailed, match="2 rewinds did not help"):
        watching.observe(30, {**GOOD, "loss_deviations": 7.0}, data_step=30)
    assert [event["action"] for event in read_jsonl(tmp_path / EVENTS)] == ["rewind", "rewind", "stop"]


def test_the_state_of_the_guards_is_plain_json(tmp_path: Path, listener: Listener) -> None:
    watching = guards(tmp_path, listener, spike="rewind")
    for value in (1.0, 2.0, 3.0):
        watching.admit(torch.tensor(value), torch.tensor(value / 3))
    again = guards(tmp_path, listener, spike="rewind")
    again.restore(json.loads(json.dumps(watching.state())))
    assert again.state() == watching.state()
