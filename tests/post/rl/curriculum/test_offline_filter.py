"""The offline filter: pass rates of the start checkpoint, what is dropped, interruption, and the run after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.envs.pass_rates import read_pass_rates
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import make_task
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.policy import chat_format
from ingot.post.processes import ALONE
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum import offline_filter as tried
from ingot.post.rl.curriculum.difficulty import TriedConfig
from ingot.post.rl.curriculum.offline_filter import (
    PASS_RATES,
    SLOTS,
    EngineAnswers,
    Tried,
    sort_out,
    tried_tasks,
    try_tasks,
)
from ingot.workspace.errors import DataError, Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS


def config_of(tasks: dict[str, Any], **options: Any) -> RlConfig:
    usual: dict[str, Any] = {"steps": 3, "sequence_length": 64, "prompts_per_step": 6, "group": 4, "max_new_tokens": 4}
    usual |= {"tasks": tasks, "device": "cpu", "precision": "float32", "record_every": 1, "optimizer": {"lr": 1e-9}}
    return RlConfig.model_validate(
        usual | {"difficulty": {"tried": {"samples": 4, "low": 0.1, "high": 0.9, **options}}}
    )


def test_what_is_outside_the_range_is_dropped() -> None:
    """By hand: rows one by one, levels together; a kind of which nothing is left; environments that failed."""

    def of(kind: str, name: str, *right: bool | None, level: int | None = None) -> list[tuple[Any, Any]]:
        made = make_task(kind, name, data={} if level is None else {"level": level})
        return [(made, None if one is None else (one, float(one))) for one in right]

    pairs = [*of("rows", "a", True, True), *of("rows", "b", True, False), *of("rows", "c", False, None)]
    pairs += [
        *of("rows", "d", None, None),
        *of("drawn", "1", True, True, level=1),
        *of("drawn", "2", True, True, level=1),
    ]
    pairs += [*of("drawn", "3", True, False, level=2), *of("drawn", "4", False, False, level=2), *of("gone", "5", True)]
    names = {name: make_task("rows", name).id for name in "abcd"}
    found = sort_out(pairs, frozenset({"drawn", "gone"}), TriedConfig(low=0.2, high=0.8))
    assert found.counts == {
        **{names["a"]: (2, 2), names["b"]: (1, 2), names["c"]: (0, 1), names["d"]: (0, 0)},
        **{"drawn/1": (4, 4), "drawn/2": (1, 4), "gone": (1, 1)},
    }
    assert found.dropped == {names["a"], names["c"], names["d"], "drawn/1", "gone"}
    with pytest.raises(DataError, match=r"no task has a pass rate of 0\.9 to 0\.95; they are from 0\.000 to 1\.000"):
        sort_out(pairs, frozenset({"drawn", "gone"}), TriedConfig(low=0.9, high=0.95))


def test_a_mixture_leaves_out_what_is_dropped() -> None:
    levels = TaskMixConfig.model_validate(
        {"weights": {"arithmetic": 1, "strings": 3}, "arithmetic": {"digits_min": 1, "digits_max": 3}}
    )
    made = TaskMix(levels, {"arithmetic/2", "strings"}).generate(3, 40, "train")
    assert {task.level for task in made} == {"arithmetic/1", "arithmetic/3"} and len({task.id for task in made}) == 40
    assert TaskMix(levels, {"nothing"}).generate(3, 40, "train") == TaskMix(levels).generate(3, 40, "train")
    gone = {task.id for task in TaskMix(SUMS).generate(3, 20, "train")}
    assert not gone & {task.id for task in TaskMix(SUMS, gone).generate(3, 20, "train")}
    with pytest.raises(DataError, match="neither too easy nor too hard"):
        TaskMix(levels, {f"arithmetic/{level}" for level in (1, 2, 3)}).generate(3, 40, "train")


def test_pass_rates_are_those_of_the_start_checkpoint(
    schooled: StageFolder, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder]
) -> None:
    """The file against answers that are sampled and counted apart from it; then a run asks nothing that was dropped."""
    folder, config = make_folder("rl"), config_of(tasks)
    rl.run(config, {"checkpoint": schooled.path}, folder)
    model, mix = load_model(schooled.path), TaskMix(config.tasks)
    rows = list(mix.kinds["sums"].rows("train") or ())
    engine = Engine(model, slots=7, length=64)
    drawing, limits = Drawing(seed=folder.seed), Limits(4, 64)
    asked = [task for task in rows for _ in range(4)]
    done = rollout(asked, engine, chat_format(model), mix.kinds, drawing=drawing, limits=limits)
    wanted = {task.id: sum(each.score.correct for each in done if each.task.id == task.id) / 4 for task in rows}
    rates = read_pass_rates(str(folder.path / PASS_RATES))
    assert {name: rates[name] for name in wanted} == wanted and len(set(wanted.values())) > 2
    trained = {row["task_id"] for row in read_jsonl(folder.path / "trajectories.jsonl") if row["kind"] == "sums"}
    assert trained and trained <= {name for name, rate in wanted.items() if 0.1 <= rate <= 0.9} < set(wanted)


def by_engine(model: Transformer, config: RlConfig, folder: StageFolder) -> Tried:
    tasks = tried_tasks(config, folder.seed)
    assert tasks is not None
    return try_tasks(EngineAnswers(model, config, tasks, ALONE), tasks, config, folder, ALONE)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of a CPU without bfloat16
@pytest.mark.parametrize(
    ("options", "slots", "dtype"),
    [({}, SLOTS, torch.float32), ({"slots": 5, "sampling_precision": "bfloat16"}, 5, torch.bfloat16)],
)
def test_it_samples_as_the_stage_does(
    options: dict[str, Any],
    slots: int,
    dtype: torch.dtype,
    schooled: StageFolder,
    tasks: dict[str, Any],
    make_folder: Callable[[str], StageFolder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the precision and the slots of its options; what other ones had sampled is not taken over."""
    engines: list[Engine] = []

    def made(*arguments: Any, **named: Any) -> Engine:
        engines.append(Engine(*arguments, **named))
        return engines[-1]

    monkeypatch.setattr(tried, "Engine", made)
    config, model, folder = config_of(tasks, drawn=6), load_model(schooled.path), make_folder("rl")
    by_engine(model, config.model_copy(update=options), folder)
    (engine,) = engines
    assert engine.slots == slots and {each.dtype for each in engine.model.parameters()} == {dtype}
    by_engine(model, config.model_copy(update=options), folder)
    assert len(engines) == 1, "all answers are there"
    by_engine(model, config.model_copy(update={"sampling_precision": "bfloat16", "slots": 6}), folder)
    assert len(engines) == 2


def test_an_interrupted_trial_goes_on(
    schooled: StageFolder,
    tasks: dict[str, Any],
    make_folder: Callable[[str], StageFolder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tried, "PIECE", 16)
    config, model = config_of(tasks, drawn=6), load_model(schooled.path)
    straight = by_engine(model, config, make_folder("straight"))
    sampled: list[int] = []
    plain = rollout

    def counted(*arguments: Any, only: slice, **options: Any) -> Any:
        if len(sampled) == 3:
            sampled.append(-1)
            raise Interrupted
        sampled.append(only.start)
        return plain(*arguments, only=only, **options)

    monkeypatch.setattr(tried, "rollout", counted)
    with pytest.raises(Interrupted):
        by_engine(model, config, make_folder("stopped"))
    again = by_engine(model, config, make_folder("stopped"))
    assert again == straight != Tried() and again.dropped
    starts = [start for start in sampled if start >= 0]
    assert len(starts) == len(set(starts)) > 4, "no piece is sampled twice"
    files = [(make_folder(name).path / PASS_RATES).read_text() for name in ("straight", "stopped")]
    assert files[0] == files[1]
