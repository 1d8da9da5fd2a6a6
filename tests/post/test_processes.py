"""Stages in several processes end as in one: the same texts, metrics, records and weights, however the model is divided.

Real processes on the CPU (gloo), in float32. Answers have uneven lengths, and the processes uneven numbers of them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from ingot.checkpoints.checkpoint import load_model
from ingot.inference.engine import Engine
from ingot.post import barrier
from ingot.post.algorithms.dpo import Dpo
from ingot.post.prefer_config import PreferConfig
from ingot.recipe.stages import STAGES as KINDS
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.layouts.steps import fresh
from ingot.train.parallel import layout
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.errors import ArtifactError, Interrupted, RecipeError
from ingot.workspace.files import read_jsonl
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress
from ingot.workspace.stage import Stage, StageFolder
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, nudged, tiny_model
from tests.slow import first_fast
from tests.train.parallel.models import MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.toy import TIMES

STEPS = 4
COMMON: dict[str, Any] = {
    "steps": STEPS,
    "sequence_length": 64,
    "micro_batch_tokens": 100,
    "tasks": SUMS,
    "optimizer": {"lr": 2e-3, "epsilon": 1e-4},  # a larger ε than usual: it does not blow up the last bit of gradients
    "checkpoints": {"every": 2},
    "precision": "float32",
    "device": "cpu",
}
SAMPLING: dict[str, Any] = {"prompts_per_step": 5, "group": 3, "max_new_tokens": 12, "record_every": 1}
GRPO = {"algorithm": "grpo", "reference_weight": 0.05, "format_reward": 0.2}
CRITIC = {"algorithm": "ppo", "ratio": "mean", "aggregation": "sequence", "format_reward": 0.2}
CHOSEN: dict[str, Any] = {
    "difficulty": {"tried": {"samples": 3, "drawn": 5, "high": 1.0}, "curriculum": "prioritized"},
    "canary": {"every": 1, "window": 3, "held_out": {"count": 5}, "verifier": "no_think"},
}
ANSWERS: dict[str, Any] = {
    "prompts": 30,
    "samples": 5,
    "max_new_tokens": 12,
    "temperature": 2.0,
    "batch_pairs": 5,
}
STAGES: dict[str, tuple[Stage, dict[str, Any]]] = {
    "sft": (KINDS["sft"], {"task_conversations": 50, "batch_conversations": 7}),
    "prefer": (KINDS["prefer"], ANSWERS),
    "online": (KINDS["prefer"], ANSWERS | {"pairs": {"refresh": 2}}),
    "rated": (KINDS["prefer"], ANSWERS | {"algorithm": "kto", "batch_pairs": 9}),
    "rl": (KINDS["rl"], SAMPLING | {"algorithm": GRPO, "temperature": 2.0}),
    "updates": (
        KINDS["rl"],
        SAMPLING | {"algorithm": CRITIC, "temperature": 2.0, "mini_batches": 2, "prompts_per_step": 3} | CHOSEN,
    ),
    "distill": (KINDS["distill"], SAMPLING | {"group": 2}),
    "gkd": (KINDS["distill"], SAMPLING | {"group": 2, "algorithm": {"algorithm": "gkd", "beta": 0.5}}),
    "top_k": (KINDS["distill"], SAMPLING | {"group": 2, "algorithm": {"algorithm": "top_k", "k": 5}}),
    "gold": (KINDS["distill"], SAMPLING | {"group": 2, "algorithm": "gold"}),
}
Inputs = dict[str, dict[str, Path]]  # of every stage
Case = tuple[str, dict[str, int]]  # a stage and its mesh
CASES: list[Case] = [
    ("prefer", {"shard": 2}),
    ("rl", {"tensor": 2}),
    ("updates", {"shard": 2}),
    ("distill", {"shard": 2}),
]
MORE: list[Case] = [
    ("sft", {"shard": 2}),
    ("rl", {"shard": 2}),
    ("gold", {"shard": 2}),  # gkd's divergence, with two tokenizers
    ("rl", {"replicate": 2}),
    ("gkd", {"shard": 2}),
    ("top_k", {"shard": 2}),
    ("rl", {"context": 2}),
    ("rl", {"pipeline": 2}),
    ("updates", {"tensor": 2}),
    ("updates", {"pipeline": 2}),
    ("prefer", {"tensor": 2}),
    ("prefer", {"pipeline": 2}),
    ("online", {"shard": 2}),
    ("rated", {"shard": 2}),
    ("distill", {"context": 2}),
    ("gkd", {"context": 2}),
    ("gkd", {"tensor": 2}),
    ("gkd", {"pipeline": 2}),
    ("top_k", {"context": 2}),
    ("gold", {"tensor": 2}),
    ("gold", {"pipeline": 2}),
    ("sft", {"context": 2}),
]


class WhenDone(Progress):
    """Does something when so many steps are done."""

    def __init__(self, steps: int, act: Callable[[], None]) -> None:
        self.steps, self.act = steps, act

    def advance(self, done: int, **values: Any) -> None:
        if done == self.steps:
            self.act()


def run_stage(
    case: Case,
    inputs: Inputs,
    path: Path,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
    **changes: Any,
) -> dict[str, Any]:
    kind, mesh = case
    stage, options = STAGES[kind]
    config = stage.config.model_validate(COMMON | options | {"mesh": mesh} | changes)
    return stage.run(config, inputs[kind], StageFolder(path, 1, progress or Progress(), stop or StopSignal()))


def place(case: Case, below: Path) -> Path:
    return below / "-".join([case[0], *case[1]])


def run_cases(cases: Sequence[Case], inputs: Inputs, below: Path) -> list[dict[str, Any]]:
    """One after the other in the same processes, which take longer to start than to train."""
    return [run_stage(case, inputs, place(case, below)) for case in cases]


@pytest.fixture(scope="module")
def inputs(schooled: StageFolder, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Some answers of the schooled model are right; those of a student after an accident have all lengths."""
    student = checkpoint_of(
        nudged(load_model(schooled.path), 0.2, seed=3), tmp_path_factory.mktemp("student") / "model"
    )
    start = {"checkpoint": schooled.path}
    taught = {"checkpoint": student, "teacher": schooled.path}
    starts = dict.fromkeys(("sft", "prefer", "online", "rated", "rl", "updates"), start)
    other = tiny_model(train_tokenizer(["10 11 the numbers"] * 40, TokenizerConfig(vocabulary_size=292)), seed=4)
    across = {"checkpoint": checkpoint_of(other, tmp_path_factory.mktemp("other") / "model"), "teacher": schooled.path}
    return starts | dict.fromkeys(("distill", "gkd", "top_k"), taught) | {"gold": across}


@pytest.fixture(scope="module")
def alone(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages in one process: those of CASES."""
    below = tmp_path_factory.mktemp("alone")
    run_cases([(kind, {}) for kind in dict.fromkeys(kind for kind, _ in CASES)], inputs, below)
    for kind in ("rl", "distill"):
        lengths = {sum(map(len, texts_of(row))) for row in read_jsonl(below / kind / "trajectories.jsonl")}
        assert len(lengths) >= 5, "uneven answers"
    assert {row["reward"] for row in read_jsonl(below / "rl" / "trajectories.jsonl")} == {0.0, 1.0}
    return below


def texts_of(row: dict[str, Any]) -> list[list[str]]:
    return [node["pieces"] for node in row["nodes"]]


def last_bit_of_rewards(stage: Path) -> float:
    """β times the last bit of the largest log-probability of a pair: rewards of DPO are β (log p − log ref), and the subtraction
    keeps what float32 rounded of the two. In float64 layouts agree to 1e-12 (tests/train/parallel/test_preference.py)."""
    found: list[Any] = [row for file in (stage / "reference").glob("*.jsonl") for row in read_jsonl(file)[1:]]
    largest = max((abs(value) for row in found for value in row), default=0.0)
    return Dpo().beta * float(numpy.spacing(numpy.float32(largest)))


def check_equal(found: Path, expected: Path) -> None:
    """Metrics and weights to 1e-5, sampled texts and their rewards exactly."""
    bounds = dict.fromkeys(("chosen_reward", "rejected_reward", "margin"), last_bit_of_rewards(expected))
    one, other = (stage_folder(path).metrics.read() for path in (found, expected))
    assert [row["step"] for row in one] == list(range(STEPS))
    for row, wanted in zip(one, other, strict=True):
        assert row.keys() == wanted.keys()
        for name in row.keys() - set(TIMES):
            estimated = name.startswith("update_ratio/")  # of a sample of the weights
            undecided = name == "preference_accuracy" and row["step"] == 0  # all margins are 0
            if not estimated and not undecided:
                bound = max(2e-6, bounds.get(name, 0.0))
                assert row[name] == pytest.approx(wanted[name], rel=1e-5, abs=bound), (row["step"], name)
    for name in ("trajectories.jsonl", "pairs.jsonl"):
        assert (found / name).exists() == (expected / name).exists()
        if not (expected / name).exists():
            continue
        records, wanted_records = read_jsonl(found / name), read_jsonl(expected / name)
        for record, wanted in zip(records, wanted_records, strict=True):
            if "nodes" in wanted:
                assert texts_of(record) == texts_of(wanted)
                record, wanted = ({**each, "nodes": None} for each in (record, wanted))
            assert record == wanted
    weights, others = (load_model(path).state_dict() for path in (found, expected))
    for name, value in others.items():
        assert float((weights[name] - value).norm()) <= 1e-5 * float(value.norm()), name


def check_cases(cases: Sequence[Case], inputs: Inputs, alone: Path, below: Path, processes: int = 2) -> None:
    summaries = run_ranks(processes, run_cases, below / "store", cases, inputs, below)
    assert summaries == summaries[:1] * processes, "all processes say the same"
    for case in cases:
        check_equal(place(case, below), alone / case[0])


def test_two_processes_end_as_one(inputs: Inputs, alone: Path, tmp_path: Path) -> None:
    check_cases(CASES, inputs, alone, tmp_path)


@pytest.mark.slow
def test_every_other_way_to_divide_the_model(inputs: Inputs, alone: Path, tmp_path: Path) -> None:
    run_cases([(kind, {}) for kind in ("sft", "online", "rated", "gkd", "top_k", "gold")], inputs, alone)
    check_cases(MORE, inputs, alone, tmp_path)


@pytest.mark.slow
def test_experts_in_four_processes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Routers' biases are buffers, which move with the loads of all ranks: the copy that is sampled from needs them, too."""
    config = shape(MOE, vocabulary_size=tokenizer.vocabulary_size, context=64, initial={"std": 0.3})
    found = dict[str, Path]()
    for seed, role in enumerate(("checkpoint", "teacher")):
        model = fresh(config, seed)
        model.tokenizer = tokenizer
        found[role] = checkpoint_of(model, tmp_path / role)
    inputs, alone = {"distill": found}, tmp_path / "alone"
    run_cases([("distill", {})], inputs, alone)
    before, after = (load_model(path).state_dict() for path in (found["checkpoint"], alone / "distill"))
    assert any("bias" in name and not torch.equal(after[name], before[name]) for name in after)
    meshes: list[dict[str, int]] = [
        {"expert": 2, "shard": 4},
        {"expert": 2, "context": 2, "shard": 2},
        {"tensor": 2, "shard": 2},
        {"pipeline": 2, "replicate": 2},
    ]
    check_cases([("distill", mesh) for mesh in meshes], inputs, alone, tmp_path, processes=4)


def run_and_die(inputs: Inputs, path: Path) -> None:
    def die() -> None:
        if distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    run_stage(("rl", {"shard": 2}), inputs, path, WhenDone(3, die), checkpoints={"every": 1})


def test_killed_in_two_processes_and_finished_in_one(inputs: Inputs, alone: Path, tmp_path: Path) -> None:
    """The second process dies after three steps; the first one finds out, or is ended by whoever started it."""
    path = tmp_path / "rl"
    with pytest.raises(AssertionError, match=r"ranks \[(0, )?1\] died|rank 0 of 2:(.|\n)*Connection"):
        run_ranks(2, run_and_die, tmp_path / "store", inputs, path)
    assert list((path / "steps").glob("step-*[0-9]")) and not (path / "checkpoint").exists()
    run_stage(("rl", {}), inputs, path)
    check_equal(path, alone / "rl")


@pytest.mark.parametrize("kind", STAGES)
def test_a_mesh_for_other_processes_is_refused_before_any_work(kind: str, inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"the mesh has 2 ranks .* the run has 1 processes"):
        run_stage((kind, {"shard": 2}), inputs, tmp_path / "stage")
    assert not (tmp_path / "stage").exists()


@pytest.mark.parametrize("kind", STAGES)
def test_a_model_that_cannot_talk_is_refused_before_any_work(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = tiny_model(tokenizer)
    model.tokenizer = None
    checkpoint = checkpoint_of(model, tmp_path / "mute")
    with pytest.raises(ArtifactError, match=r"mute: the checkpoint has no tokenizer"):
        run_stage((kind, {}), {kind: {"checkpoint": checkpoint, "teacher": checkpoint}}, tmp_path / "stage")
    assert not (tmp_path / "stage").exists()


def test_preferences_of_divided_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"mesh\.context: preferences compare whole answers"):
        PreferConfig(steps=1, sequence_length=8, mesh=MeshConfig(context=2))


def run_until_asked_to_stop(case: Case, inputs: Inputs, path: Path, done: int) -> tuple[int, list[str]]:
    """The second process is asked to stop at its second step of sampling after `done` steps of training; how many of these
    the engine of each makes then, and what is saved."""
    stop, made, trained, step_of_engine = StopSignal(), 0, 0, Engine.step

    def count_trained() -> None:
        nonlocal made, trained
        made, trained = 0, done

    def step(engine: Engine) -> None:
        nonlocal made
        step_of_engine(engine)
        made += 1
        if distributed.get_rank() == 1 and (made, trained) == (2, done):
            stop.request()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "step", step)
        patch.setattr(barrier, "BARRIER_SECONDS", 0.0)
        with pytest.raises(Interrupted):
            run_stage(case, inputs, path, WhenDone(done, count_trained), stop, checkpoints={"every": 3})
    return made, sorted(each.name for each in (path / "steps").glob("*"))


@pytest.mark.parametrize(("kind", "done", "saved"), [("prefer", 0, []), ("rl", 2, ["step-0000002"])])
def test_a_stop_while_they_sample(
    kind: str, done: int, saved: list[str], inputs: Inputs, alone: Path, tmp_path: Path
) -> None:
    """They agree at the next barrier, save what is there, and another start ends as if nothing had been."""
    case, path = (kind, {"shard": 2}), tmp_path / "stage"
    found = run_ranks(2, run_until_asked_to_stop, tmp_path / "stopped", case, inputs, path, done)
    assert [made for made, _ in found] in ([2, 2], [3, 2]), (
        "they meet at every prompt and step; rank 0 may have a prompt less"
    )
    assert [names for _, names in found] == [saved] * 2
    run_stage((kind, {}), inputs, path)
    check_equal(path, alone / kind)


GROUPED = ("sft", "prefer", "online", "rl", "updates", "distill")  # the others have another loss


def groups_of_stages(kinds: Sequence[str], inputs: Inputs, below: Path) -> dict[str, tuple[int, int]]:
    """How many meshes, and how many groups of all processes beside the first one, each stage makes."""
    made: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            made[name] += 1
            return function(*given, **options)

        return call

    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "init_device_mesh", counted("meshes", init_device_mesh))
        patch.setattr(distributed, "new_group", counted("groups", distributed.new_group))
        for kind in kinds:
            made.clear()
            run_stage((kind, {"shard": 2}), inputs, below / kind, steps=1)
            found[kind] = made["meshes"], made["groups"]
    return found


@pytest.mark.parametrize("kinds", first_fast([["sft", "updates"], list(GROUPED)]), ids=["two", "all"])
def test_one_mesh_and_no_group_that_nobody_uses(kinds: Sequence[str], inputs: Inputs, tmp_path: Path) -> None:
    """A group for saving, in the background, and another one for work that the processes share."""
    found = run_ranks(2, groups_of_stages, tmp_path / "store", kinds, inputs, tmp_path)
    assert found == [dict.fromkeys(kinds, (1, 2))] * 2
