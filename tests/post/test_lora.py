"""Stages that train adapters: in one process and in two, stopped and resumed, on frozen weights of 4 bits, of a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.checkpoints.adapter import adapted
from ingot.checkpoints.checkpoint import load_model, open_model
from ingot.checkpoints.peft import read_peft
from ingot.model.lora import LoraLinear, lora_layers
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import begin
from ingot.post.rl.config import RlConfig
from ingot.post.rl.source import RlSource
from ingot.post.rl.token_scores import by_episode, plain_sequences
from ingot.recipe.stages import STAGES as KINDS
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.config import TrainingConfig
from ingot.train.layouts.steps import fresh
from ingot.workspace.files import read_json
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.post.making import blank_batch, checkpoint_of, engine_of, nudged
from tests.post.test_processes import Case, Inputs, check_equal, place, run_stage
from tests.post.test_resume import run_interrupted
from tests.slow import first_fast
from tests.train.parallel.models import MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.toy import TIMES

LORA: dict[str, Any] = {"rank": 4, "alpha": 8}
FAST = ("sft", "rl")
SELDOM = {"every": 100}
LAYOUTS: list[Case] = [("sft", {"pipeline": 2}), ("rl", {"shard": 2})]
MORE_LAYOUTS: list[Case] = [
    ("sft", {"tensor": 2}),
    ("sft", {"shard": 2}),
    ("rl", {"tensor": 2}),
    ("rl", {"pipeline": 2}),
    ("updates", {"tensor": 2}),
    ("updates", {"pipeline": 2}),
    ("prefer", {"shard": 2}),
    ("prefer", {"tensor": 2}),
    ("distill", {"shard": 2}),
    ("distill", {"pipeline": 2}),
]


@pytest.fixture(scope="module")
def inputs(schooled: StageFolder, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    student = checkpoint_of(
        nudged(load_model(schooled.path), 0.2, seed=3), tmp_path_factory.mktemp("student") / "model"
    )
    start = {"checkpoint": schooled.path}
    starts = dict.fromkeys(("sft", "prefer", "rl", "updates"), start)
    return starts | {"distill": {"checkpoint": student, "teacher": schooled.path}}


def run_with(cases: Sequence[Case], inputs: Inputs, below: Path, lora: dict[str, Any]) -> list[dict[str, Any]]:
    return [run_stage(case, inputs, place(case, below), lora=lora, checkpoints=SELDOM) for case in cases]


@pytest.mark.parametrize(
    ("cases", "changes"),
    [
        pytest.param(LAYOUTS, {}, marks=pytest.mark.slow),
        pytest.param(MORE_LAYOUTS, {}, marks=pytest.mark.slow),
        pytest.param([*LAYOUTS, *MORE_LAYOUTS], {"base": "nf4"}, marks=pytest.mark.slow),
    ],
    ids=["some", "more", "nf4"],
)
def test_two_processes_end_as_one(cases: list[Case], changes: dict[str, Any], inputs: Inputs, tmp_path: Path) -> None:
    """Base and adapters are divided; sampler and reference are whole copies with the adapters merged.

    The stages' own checks run too: the policy and its sampler give every token the same probability.
    """
    alone: list[Case] = [(kind, {}) for kind in dict.fromkeys(kind for kind, _ in cases)]
    run_with(alone, inputs, tmp_path, LORA | changes)
    summaries = run_ranks(2, run_with, tmp_path / "store", cases, inputs, tmp_path, LORA | changes)
    assert summaries == summaries[:1] * 2
    for case in cases:
        check_equal(place(case, tmp_path), tmp_path / case[0])
        check_result(place(case, tmp_path), inputs[case[0]]["checkpoint"], heads=case[0] == "updates")


def check_result(stage: Path, start: Path, heads: bool) -> None:
    """The result is the base plus the adapter, in all linear layers of the blocks and nowhere else; only adapters, and `heads`,
    trained."""
    base = open_model(start)
    merged = adapted(base, read_peft(stage / "adapter", base.config)).load().state_dict()
    result, before = load_model(stage).state_dict(), base.load().state_dict()
    critic = {name: result.pop(name) for name in set(result) - set(before)}
    assert len(critic) == heads and all(value.abs().sum() > 0 for value in critic.values()), "it starts as 0"
    changed = {name for name, value in result.items() if not torch.equal(value, before[name])}
    assert changed == {name for name in result if name.startswith("blocks.") and name.endswith(".weight")}
    assert all(torch.equal(value, merged[name]) for name, value in result.items())
    told = read_json(stage / "start.json")
    adapters = sum(4 * (inputs + outputs) for inputs, outputs in SHAPES) * 2 + 32 * heads
    assert told["trained_parameters"] == adapters
    if "pipeline" not in stage.name:  # where the groups are those of the first rank's layers
        assert sum(group["parameters"] for group in told["groups"]) == adapters


SHAPES = [(32, 32), (32, 16), (32, 16), (32, 32), (32, 64), (32, 64), (64, 32)]
"""Inputs and outputs of q, k, v, o, gate, up and down of a layer."""


@pytest.mark.parametrize(
    "options",
    first_fast([{"dropout": 0.3, "train_rows": (7, 3)}, {"base": "nf4"}]),
    ids=lambda options: next(iter(options)),
)
def test_a_resumed_run_is_the_undisturbed_one(options: dict[str, Any], inputs: Inputs, tmp_path: Path) -> None:
    stage = KINDS["sft"]
    config = stage.config.model_validate(
        {
            "steps": 5, "sequence_length": 64, "tasks": SFT_TASKS, "task_conversations": 50, "batch_conversations": 8,
            "optimizer": {"lr": 1e-2}, "precision": "float32", "device": "cpu", "lora": LORA | options,
            "activations": {"keep": "blocks"},
        }
    )  # fmt: skip
    stage.run(config, inputs["sft"], stage_folder(tmp_path / "one"))
    run_interrupted(stage, config, inputs["sft"], tmp_path / "two", [2])
    one, two = (stage_folder(tmp_path / name).metrics.read() for name in ("one", "two"))
    assert [_lasting(row) for row in one] == [_lasting(row) for row in two]
    assert one[-1]["loss"] != one[0]["loss"]
    _same(load_model(tmp_path / "one").state_dict(), load_model(tmp_path / "two").state_dict())


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMES}


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


SFT_TASKS = {"weights": {"no_think": 1.0}, "no_think": {"operations": ["sum"], "largest": 5}}


@pytest.mark.parametrize("recomputed", first_fast(["blocks", "products"]))
def test_recomputation_draws_the_same_dropout(recomputed: str, inputs: Inputs, tmp_path: Path) -> None:
    runs = {}
    for keep in ("all", recomputed):
        options: dict[str, Any] = {
            "lora": LORA | {"dropout": 0.5},
            "activations": {"keep": keep},
            "checkpoints": SELDOM,
        }
        run_stage(("sft", {}), inputs, tmp_path / keep, **options)
        runs[keep] = stage_folder(tmp_path / keep).metrics.read()
    run_stage(("sft", {}), inputs, tmp_path / "without", lora=LORA, checkpoints=SELDOM)
    for name in ("loss", "gradient_norm"):
        assert runs[recomputed][-1][name] == pytest.approx(runs["all"][-1][name], rel=1e-5)
    assert stage_folder(tmp_path / "without").metrics.read()[-1]["loss"] != runs["all"][-1]["loss"]


def test_only_the_named_rows_train(inputs: Inputs, tmp_path: Path) -> None:
    run_stage(("sft", {}), inputs, tmp_path / "rows", lora=LORA | {"train_rows": (3, 7)}, checkpoints=SELDOM)
    before = load_model(inputs["sft"]["checkpoint"]).state_dict()
    after = load_model(tmp_path / "rows").state_dict()
    for name in ("embedding.weight", "output.weight"):
        if name in before:
            changed = (before[name] != after[name]).any(dim=1).nonzero().flatten().tolist()
            assert set(changed) <= {3, 7} and changed, name


@pytest.mark.parametrize("form", first_fast(["nf4", "int4", "bfloat16"], 2))
def test_a_packed_base_takes_fewer_bytes_and_is_not_rounded_into_the_result(
    form: str, inputs: Inputs, tmp_path: Path
) -> None:
    for kind in (
        FAST if form == "nf4" else ("sft",)
    ):  # rl samples from packed weights, and checks that training has the same
        run_stage((kind, {}), inputs, tmp_path / kind, lora=LORA | {"base": form}, checkpoints=SELDOM)
        base = open_model(inputs[kind]["checkpoint"])
        merged = adapted(base, read_peft(tmp_path / kind / "adapter", base.config)).load()
        _same(load_model(tmp_path / kind).state_dict(), merged.state_dict())
    config = TrainingConfig.model_validate(
        {"steps": 1, "sequence_length": 64, "lora": LORA | {"base": form}, "device": "cpu"}
    )
    _, model, _ = begin(config, inputs["sft"]["checkpoint"], seed=0)
    layers = lora_layers(model).values()
    held = sum(each.numel() * each.element_size() for layer in layers for each in _frozen(layer))
    weights = sum(layer.in_features * layer.out_features for layer in layers)
    grouped = sum(layer.out_features * layer.in_features * (4 + 64 / min(64, layer.in_features)) for layer in layers)
    bits = {"bfloat16": 16.0, "int4": grouped / weights, "nf4": 4 + 8 / 64}[form]
    assert 8 * held / weights == pytest.approx(bits, rel=0.03)


def _frozen(layer: LoraLinear) -> list[Tensor]:
    assert layer.frozen is not None and not list(layer.parameters(recurse=False))
    return list(layer.frozen.buffers())


def test_the_reference_of_rl_is_the_model_without_its_adapters(inputs: Inputs, tmp_path: Path) -> None:
    """No second copy is held, and what it scores is what the input checkpoint scores."""
    config = RlConfig.model_validate(
        {
            "steps": 1, "sequence_length": 64, "tasks": SFT_TASKS, "lora": LORA, "device": "cpu", "max_new_tokens": 6,
            "prompts_per_step": 3, "group": 2, "algorithm": {"algorithm": "grpo", "reference_weight": 0.1},
        }
    )  # fmt: skip
    folder = stage_folder(tmp_path)
    _, model, _ = begin(config, inputs["rl"]["checkpoint"], seed=0)
    source = RlSource(model, config, folder)
    assert source.scores.frozen is None and source.scores.reference is None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".lora_B"):
                parameter.normal_(0, 0.1)
    base = load_model(inputs["rl"]["checkpoint"])
    sampler = engine_of(source)
    sampler.renew(0)
    episodes = sampler.sample(sampler.mix.generate(0, 3, "train"), blank_batch(source, 0))
    ours = source.scores.frozen_logprobs(episodes, 1.0)
    expected = by_episode(episodes, sequence_logprobs(base, plain_sequences(episodes), config.sequence_length))
    for one, other in zip(ours, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_a_mixture(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Attention and shared experts have adapters, routed experts do not; routers' biases move, and reach the result."""
    model = fresh(shape(MOE, vocabulary_size=tokenizer.vocabulary_size, context=64, initial={"std": 0.3}))
    model.tokenizer = tokenizer
    start = {"checkpoint": checkpoint_of(model, tmp_path / "base")}
    run_stage(("sft", {}), {"sft": start}, tmp_path / "sft", lora=LORA, checkpoints=SELDOM)
    before, after = model.state_dict(), load_model(tmp_path / "sft").state_dict()
    changed = {name.split(".", 2)[2] for name in after if not torch.equal(before[name], after[name])}
    assert changed >= {"mixer.query_key_value.weight", "mixer.output.weight", "feed_forward.shared.down.weight"}
    assert changed <= {
        "mixer.query_key_value.weight",
        "mixer.output.weight",
        "feed_forward.shared.gate_up.weight",
        "feed_forward.shared.down.weight",
        "feed_forward.router.selection_bias",
    }
    assert "feed_forward.router.selection_bias" in changed
    (said,) = read_json(tmp_path / "sft" / "start.json")["untrained"]
    experts = sum(each.numel() for name, each in model.named_parameters() if ".experts." in name)
    blocks = sum(each.numel() for each in model.blocks.parameters())
    assert said.startswith("lora: the routed experts, ") and said.endswith(
        "have no adapters: all-linear means the others"
    )
    assert float(said.split()[4].rstrip("%")) / 100 == pytest.approx(experts / blocks, abs=0.1)


def test_what_adapters_cannot_do_is_refused() -> None:
    for changes, words in (
        ({"train_only": ("*.output.*",)}, "leave train_only out"),
        ({"optimizer": {"kind": "muon", "qk_clip": 100.0}}, "qk_clip"),
    ):
        with pytest.raises(ValueError, match=words):
            TrainingConfig.model_validate({"steps": 1, "sequence_length": 64, "lora": LORA, **changes})


def test_a_kept_step_is_a_model(inputs: Inputs, tmp_path: Path) -> None:
    """Its files hold the adapters and the path of their base; the last one is the result. The mean of two is merged."""
    options: dict[str, Any] = {"lora": LORA | {"train_rows": (3,)}, "checkpoints": {"every": 2, "keep_every": 2}}
    run_stage(("sft", {}), inputs, tmp_path / "sft", **options)
    steps = [tmp_path / "sft" / "steps" / f"step-000000{step}" for step in (2, 4)]
    first, last = (load_model(step).state_dict() for step in steps)
    result = load_model(tmp_path / "sft").state_dict()
    for name, value in result.items():
        torch.testing.assert_close(last[name], value, rtol=0, atol=0)
    stage = KINDS["merge"]
    folder = stage_folder(tmp_path / "merge")
    given = {"checkpoints": {"sft": tmp_path / "sft" / "checkpoint"}}
    stage.run(stage.config.model_validate({"last": 2}), given, folder)
    for name, value in load_model(tmp_path / "merge").state_dict().items():
        torch.testing.assert_close(value, (first[name] + last[name]) / 2)
