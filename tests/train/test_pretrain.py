"""The pre-training stage: where the model starts, what validation measures, how batches grow, phases end and rates decay."""

from __future__ import annotations

import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from pydantic import ValidationError

from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.model.mixers.attention import AttentionConfig
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.loader import MixtureLoader
from ingot.tokens.metadata import with_metadata
from ingot.tokens.shards import Shards
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train import passes
from ingot.train.config import Plateau
from ingot.train.loop import Trainer
from ingot.train.losses.terms import language_terms
from ingot.train.plateau import PlateauWatch
from ingot.train.pretrain import ShardSource
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.saving.state import load_run
from ingot.train.start import start_checkpoint, start_model
from ingot.workspace.errors import ArtifactError, DataError, Interrupted, RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.train.pretraining import CONFIG, write_inputs, write_shards
from tests.train.toy import same_weights


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def pretrain_config(**changes: Any) -> PretrainConfig:
    given = {**CONFIG, "steps": 4, "checkpoints": {"every": 9}, "validate_every": 2, **changes}
    return PretrainConfig.model_validate({name: value for name, value in given.items() if value != "unset"})


def test_fresh_weights_take_the_vocabulary_and_the_seed(inputs: dict[str, Path]) -> None:
    models = [start_model(pretrain_config(), inputs, seed) for seed in (1, 1, 2)]
    tokenizer = Tokenizer.load(inputs["tokenizer"])
    assert models[0].config.vocabulary_size == tokenizer.vocabulary_size
    assert models[0].config.context == 32
    weights = [model.embedding.weight for model in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_vocabulary_that_is_too_small_is_refused(inputs: dict[str, Path]) -> None:
    config = pretrain_config(model={**CONFIG["model"], "vocabulary_size": 64})
    with pytest.raises(RecipeError, match=r"the tokenizer has \d+ tokens, the model's vocabulary_size is 64"):
        start_model(config, inputs, 1)
    assert start_model(pretrain_config(model={**CONFIG["model"], "vocabulary_size": 512}), inputs, 1) is not None


def test_a_model_and_a_checkpoint_exclude_each_other(inputs: dict[str, Path], tmp_path: Path) -> None:
    for config, given in ((pretrain_config(model=None), {}), (pretrain_config(), {"checkpoint": tmp_path})):
        with pytest.raises(RecipeError, match=r"either `model` \(fresh weights\) or an input checkpoint, and not both"):
            start_model(config, {**inputs, **given}, 1)


def test_extending_the_context_keeps_the_weights(inputs: dict[str, Path], tmp_path: Path) -> None:
    first = start_model(pretrain_config(), inputs, 1)
    save_checkpoint(tmp_path / "checkpoint", first)
    given = {**inputs, "checkpoint": tmp_path / "checkpoint"}
    longer = start_model(pretrain_config(model=None, sequence_length=64, rope_base=40_000.0), given, 1)
    assert longer.config.context == 64
    mixer = longer.config.blocks["layer"].mixer
    assert isinstance(mixer, AttentionConfig) and mixer.rope is not None and mixer.rope.base == 40_000.0
    assert all(torch.equal(value, first.state_dict()[name]) for name, value in longer.state_dict().items())
    shorter = start_model(pretrain_config(model=None, sequence_length=16, batch_tokens=64), given, 1)
    assert shorter.config == first.config, "a shorter stage forgets nothing"
    assert longer.tokenizer is not None and shorter.tokenizer is not None


def test_positions_can_be_scaled_instead(inputs: dict[str, Path], tmp_path: Path) -> None:
    first = start_model(pretrain_config(), inputs, 1)
    save_checkpoint(tmp_path / "checkpoint", first)
    given = {**inputs, "checkpoint": tmp_path / "checkpoint"}
    yarn = {"kind": "yarn", "factor": 4, "original_context": 32}
    longer = start_model(pretrain_config(model=None, sequence_length=128, rope_scaling=yarn), given, 1)
    assert longer.config == first.config.with_rope_scaling(pretrain_config(rope_scaling=yarn).rope_scaling, 128)
    assert longer.config.context == 128 and longer.config != first.config
    assert same_weights(longer.state_dict(), first.state_dict())


MOE = {
    "width": 16,
    "blocks": {
        "layer": {
            "mixer": {"heads": 2, "key_value_heads": 1, "head_width": 8},
            "feed_forward": {
                "kind": "moe",
                "experts": 4,
                "active": 1,
                "expert": {"width": 16},
                "router": {"score": "sigmoid", "selection_bias": True},
                "balancers": [{"kind": "bias", "rate": 0.01}, {"kind": "loss", "coefficient": 0.001}],
            },
        }
    },
    "layers": "layer",
    "multi_token": {"block": "layer", "weight": 0.3},
}


def test_a_later_stage_changes_coefficients_but_no_weight(inputs: dict[str, Path], tmp_path: Path) -> None:
    """DeepSeek-V3 lowers the weight of multi-token prediction and stops moving the biases late in its run."""
    folder = stage_folder(tmp_path / "early")
    run_stage(pretrain_config(model=MOE), inputs, folder)
    early = load_model(folder.path).state_dict()
    assert any(bool(value.any()) for name, value in early.items() if name.endswith("bias")), "the biases moved"
    given = {**inputs, "checkpoint": folder.artifact("checkpoint")}
    late = pretrain_config(model=None, multi_token_weight=0.1, bias_rate=0.0)
    model = start_model(late, given, 1)
    assert same_weights(model.state_dict(), early)
    assert {term.name: term.coefficient for term in language_terms(model, late)}["multi_token"] == 0.1
    run_stage(late, given, stage_folder(tmp_path / "late"))
    after = load_model(tmp_path / "late").state_dict()
    assert all(torch.equal(value, early[name]) for name, value in after.items() if "selection_bias" in name)
    run_stage(pretrain_config(model=None), given, stage_folder(tmp_path / "same"))
    moved = load_model(tmp_path / "same").state_dict()
    assert not all(torch.equal(value, early[name]) for name, value in moved.items() if "selection_bias" in name)


@pytest.mark.parametrize(("option", "value"), [("multi_token_weight", 0.1), ("bias_rate", 0.0)])
def test_a_coefficient_that_the_model_does_not_have_is_refused(
    inputs: dict[str, Path], tmp_path: Path, option: str, value: float
) -> None:
    save_checkpoint(tmp_path / "checkpoint", start_model(pretrain_config(), inputs, 1))
    with pytest.raises(RecipeError, match=f"{option}: "):
        start_model(
            pretrain_config(model=None, **{option: value}), {**inputs, "checkpoint": tmp_path / "checkpoint"}, 1
        )


def test_bits_per_byte_against_document_by_document(inputs: dict[str, Path], folder: StageFolder) -> None:
    """−Σ log2 p of every token but the first of a piece, over the bytes that these tokens stand for.

    A piece is what a window of 256 tokens holds of a document; here each goes through the model by itself.
    """
    shards = Shards(inputs["shards"])
    source = shards.source("validation")
    config = pretrain_config(
        sequence_length=256, batch_tokens=256, validation_rows=99, phases=[{"until": 1.0, "weights": {"late": 1.0}}]
    )
    summary = run_stage(config, inputs, folder)
    model = load_model(folder.path)
    bits, size = 0.0, 0
    for start in range(0, len(source) - 1, 256):
        stop = min(start + 256 + 1, len(source))
        cuts = [start, *(int(begin) for begin in source.starts if start < begin < stop), stop]
        for begin, end in pairwise(cuts):
            tokens = torch.tensor(source.read(begin, end).tolist())
            if len(tokens) < 2:
                continue
            table = model(tokens[None, :-1])[0].detach().double().log_softmax(-1)
            bits -= float(table.gather(-1, tokens[1:, None]).sum()) / math.log(2)
            size += sum(int(shards.token_bytes[token]) for token in tokens[1:].tolist())
    assert summary["validation_bits_per_byte"] == pytest.approx(bits / size, rel=1e-6)
    assert summary["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    rows = folder.metrics.read()
    assert [row["step"] for row in rows if "validation_bits_per_byte" in row] == [1, 3]
    assert rows[-1]["validation_bits_per_byte"] == summary["validation_bits_per_byte"]


def test_micro_batches_do_not_change_the_run(inputs: dict[str, Path], tmp_path: Path) -> None:
    losses = []
    for tokens in (1, 64, 10_000):
        folder = stage_folder(tmp_path / str(tokens))
        run_stage(pretrain_config(micro_batch_tokens=tokens), inputs, folder)
        losses.append([row["loss"] for row in folder.metrics.read()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_validation_has_the_shapes_of_training(inputs: dict[str, Path], folder: StageFolder) -> None:
    """Long rows by the dozen would not fit a GPU, and blocks would be compiled for another shape, documents counted there."""
    with patch.object(passes, "with_metadata", wraps=with_metadata) as measured:
        run_stage(pretrain_config(validation_rows=5), inputs, folder)
    shapes = [tuple(call.args[0].tokens.shape) for call in measured.call_args_list]
    assert shapes == 2 * [(2, 32), (2, 32), (1, 32)]


def shard_source(inputs: dict[str, Path], config: PretrainConfig) -> ShardSource:
    loader = MixtureLoader(
        inputs["shards"],
        config.phases,
        sequence_length=config.sequence_length,
        batches=config.batch_sizes,
        total_steps=config.steps,
        seed=3,
        packing=config.packing,
    )
    return ShardSource(loader, config)


ONE_PHASE: Any = [{"until": 1.0, "weights": {"early": 1.0, "late": 2.0}}]
GROWING: Any = {"start": 32, "over": 640, "lr_scaling": "sqrt"}  # one to four rows of 32 tokens


def test_a_growing_batch_draws_the_same_rows(inputs: dict[str, Path]) -> None:
    """The run's rows are one sequence; batch sizes only say where steps cut it."""
    growing = pretrain_config(steps=20, batch_warmup=GROWING, phases=ONE_PHASE)
    constant = pretrain_config(steps=20, phases=ONE_PHASE)
    rows = []
    for config in (growing, constant):
        source = shard_source(inputs, config)
        rows.append(torch.cat([batch.tokens for step in range(20) for batch in source.batches(step)[0]]))
    assert len(rows[0]) == growing.batch_sizes.rows_before(20) < len(rows[1]) == 80
    assert torch.equal(rows[0], rows[1][: len(rows[0])])


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_a_steps_rows_and_make_as_many_passes(inputs: dict[str, Path], world: int) -> None:
    source = shard_source(inputs, pretrain_config(batch_tokens=7 * 32, micro_batch_tokens=32, phases=ONE_PHASE))
    whole = torch.cat([batch.tokens for batch in source.batches(1)[0]])
    shares = [source.batches(1, rank, world)[0] for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    real = [batch for share in shares for batch in share if bool((batch.documents >= 0).any())]
    assert torch.equal(torch.cat([batch.tokens for batch in real]), whole)


def test_the_learning_rate_follows_the_tokens_and_the_batch(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Batches of 1, 1, 1 … 4 rows: the steps by hand of the formula in optim/batch_size.py; lr × √(rows / 4) × schedule."""
    folder = stage_folder(tmp_path)
    pieces = [{"until_tokens": 640, "to": 1}, {"until_tokens": 1536, "to": 0.5, "shape": "linear"}]
    config = pretrain_config(
        steps="unset",
        tokens="1.536K",
        batch_warmup=GROWING,
        phases=[{"until_tokens": 320, "weights": {"early": 1}}, {"until": 1, "weights": {"late": 1}}],
        schedule={"kind": "pieces", "warmup": 0, "pieces": pieces},
        validate_every=99,
    )
    run_stage(config, inputs, folder)
    seen, expected = 0, []
    sizes = []
    while seen < 1536:
        sizes.append(4 if seen >= 640 else 1 + seen * 3 // 640)
        expected.append(seen)
        seen += sizes[-1] * 32
    stable = next(step for step, tokens in enumerate(expected) if tokens >= 640)
    assert config.steps == len(sizes) and config.total_tokens == seen
    rows = folder.metrics.read()
    assert [row["tokens"] for row in rows] == [*expected[1:], seen]
    rates = []
    for step, size in enumerate(sizes):
        share = 1.0 if step < stable else 1 - 0.5 * (step - stable) / (len(sizes) - stable)
        rates.append(0.01 * share * math.sqrt(size / 4))
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates, rel=1e-12)
    assert len(set(sizes)) == 4, "all sizes occurred"


def test_a_re_decay_is_the_run_that_decays_there(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Six steps at the peak, kept; a stage that goes on from them and decays over six equals one run of twelve, to the bit.

    The data must be the same for that: a source of a single row.
    """
    tokenizer, text = Tokenizer.load(inputs["tokenizer"]), "No step is wasted on a rate of zero. " * 3
    write_shards(tmp_path / "shards", tokenizer, {"late": [text], "validation": [text]})
    inputs = {**inputs, "shards": tmp_path / "shards"}
    length = len(Shards(inputs["shards"]).source("late")) - 1
    same: Any = {"sequence_length": length, "batch_tokens": length, "validate_every": 99}
    same["phases"] = [{"until": 1.0, "weights": {"late": 1.0}}]
    whole = stage_folder(tmp_path / "whole")
    run_stage(pretrain_config(**same, steps=12, schedule={"kind": "wsd", "warmup": 2, "decay": 6}), inputs, whole)

    stable = stage_folder(tmp_path / "stable")
    kept = {"every": 3, "keep_every": 6}
    run_stage(
        pretrain_config(**same, steps=15, schedule={"kind": "constant", "warmup": 2}, checkpoints=kept), inputs, stable
    )
    given = {**inputs, "checkpoint": stable.artifact("checkpoint")}
    decay: Any = {
        **same,
        "model": None,
        "steps": 6,
        "from_step": 6,
        "schedule": {"kind": "wsd", "warmup": 0, "decay": 1.0},
    }
    branch = stage_folder(tmp_path / "branch")
    run_stage(pretrain_config(**decay, keep_optimizer=True), given, branch)
    assert [row["loss"] for row in branch.metrics.read()] == [row["loss"] for row in whole.metrics.read()[6:]]
    assert same_weights(load_model(branch.path).state_dict(), load_model(whole.path).state_dict())
    cold = stage_folder(tmp_path / "cold")
    run_stage(pretrain_config(**decay), given, cold)
    assert not same_weights(load_model(cold.path).state_dict(), load_model(whole.path).state_dict())
    with pytest.raises(ArtifactError, match="no checkpoint of step 5; there are those of 6, 12"):
        start_model(pretrain_config(**{**decay, "from_step": 5}), given, 1)

    trainer_config = pretrain_config(**decay, keep_optimizer=True, optimizer={"lr": 0.001, "weight_decay": 0.3})
    model = start_model(trainer_config, given, 1)
    source = shard_source(inputs, trainer_config)
    trainer = Trainer(
        model, language_terms(model, trainer_config), source, trainer_config, stage_folder(tmp_path / "own")
    )
    load_run(start_checkpoint(trainer_config, given), trainer.model, trainer.optimizer)
    assert {group["weight_decay"] for group in trainer.optimizer.param_groups} == {0.0, 0.3}, (
        "the options are this stage's"
    )
    assert all(float(state["step"]) == 6 for state in trainer.optimizer.state.values()), (
        "the moments are the checkpoint's"
    )


def stop_after(folder: StageFolder, step: int) -> None:
    """Ask the run in `folder` to stop when it has done `step` steps, or one later."""

    class Stopper(Listener):
        def advance(self, done: int, **shown: Any) -> None:
            if done >= step:
                folder.stop.request()

    folder.progress = Stopper()


def losses(folder: StageFolder) -> list[tuple[float, float | None]]:
    return [(row["loss"], row.get("validation_bits_per_byte")) for row in folder.metrics.read()]


def test_a_plateau_by_hand() -> None:
    plateau = Plateau(window=2, min_improvement=0.1)
    watch = PlateauWatch()
    values = [3.0, 2.8, 2.9, 2.5, 2.6, 2.45, 2.44]
    assert [watch.reached(value, plateau) for value in values] == [False, False, False, False, False, True, True]
    assert watch.values == [2.5, 2.45, 2.44], "the best of those before, and the window"


def plateau_config(**changes: Any) -> PretrainConfig:
    """The first phase ends as soon as two validations are known: no improvement is large enough."""
    plateau = {"window": 1, "min_improvement": 99.0}
    phases = [{"plateau": plateau, "weights": {"early": 1}}, {"until": 1, "weights": {"late": 1}}]
    return pretrain_config(steps=10, phases=phases, **changes)


def test_a_plateau_leads_to_the_next_mixture_and_survives_a_stop(inputs: dict[str, Path], tmp_path: Path) -> None:
    whole = stage_folder(tmp_path / "whole", listener := Listener())
    run_stage(plateau_config(), inputs, whole)
    assert [line for line in listener.lines if "stopped improving" in line] == [
        "step 4: validation has stopped improving; the next data mixture begins"
    ]
    fixed = stage_folder(tmp_path / "fixed")
    phases = [{"until": 0.4, "weights": {"early": 1}}, {"until": 1, "weights": {"late": 1}}]
    run_stage(pretrain_config(steps=10, phases=phases), inputs, fixed)
    assert losses(whole) == losses(fixed), "the same as if its end had been known"
    assert shard_source(inputs, plateau_config()).ahead, "a thread makes its steps all the same"
    for stop in (3, 7):  # before and after the plateau
        stopped = stage_folder(tmp_path / f"stopped-{stop}")
        stop_after(stopped, stop)
        with pytest.raises(Interrupted):
            run_stage(plateau_config(), inputs, stopped)
        stopped = stage_folder(tmp_path / f"stopped-{stop}")
        run_stage(plateau_config(), inputs, stopped)
        assert losses(stopped) == losses(whole)


def test_shards_of_a_larger_vocabulary_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    """All ids are in range of the shards' own vocabulary; the model of the other tokenizer does not have them."""
    texts = [line * 3 for line in (CONFIG["model"].__repr__(), "a larger vocabulary", "of another tokenizer")]
    other = train_tokenizer(texts, TokenizerConfig(vocabulary_size=300))
    other.save(tmp_path / "tokenizer")
    assert other.vocabulary_size < Tokenizer.load(inputs["tokenizer"]).vocabulary_size
    with pytest.raises(RecipeError, match=r"token ids up to 399, the model's vocabulary_size is \d+"):
        run_stage(pretrain_config(), {**inputs, "tokenizer": tmp_path / "tokenizer"}, stage_folder(tmp_path / "stage"))


def test_a_noise_scale_needs_two_passes(inputs: dict[str, Path], tmp_path: Path) -> None:
    listener = Listener()
    measured = stage_folder(tmp_path / "measured", listener)
    run_stage(pretrain_config(measure_noise=True), inputs, measured)  # four rows in passes of two
    assert all("noise_scale" in row for row in measured.metrics.read())
    assert not any("noise_scale" in line for line in listener.lines)  # nothing to say: every step has two
    one_pass = pretrain_config(measure_noise=True, micro_batch_tokens=128)
    with pytest.raises(RecipeError, match=r"measure_noise: (.|\n)*one only \(4 rows a rank\)(.|\n)*to 64 or less"):
        run_stage(one_pass, inputs, stage_folder(tmp_path / "one"))


def test_terabytes_need_not_be_read_at_every_start(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Without checksums a flipped byte is not seen; an id that the vocabulary does not have is, when it is read."""
    copy = {**inputs, "shards": Path(shutil.copytree(inputs["shards"], tmp_path / "shards"))}
    tokens = copy["shards"] / "early" / "tokens.bin"
    damaged = bytearray(tokens.read_bytes())
    damaged[0] ^= 1
    tokens.write_bytes(damaged)
    with pytest.raises(ArtifactError, match="checksum"):
        run_stage(pretrain_config(), copy, stage_folder(tmp_path / "read"))
    run_stage(pretrain_config(verify_shards=False), copy, stage_folder(tmp_path / "unread"))
    tokens.write_bytes(b"\xff" * len(damaged))
    with pytest.raises(DataError, match="is 65535, outside the vocabulary of 400"):
        run_stage(pretrain_config(verify_shards=False), copy, stage_folder(tmp_path / "outside"))
    assert pretrain_config(verify_shards=False).work() == pretrain_config().work()


def test_documents_can_be_kept_whole(inputs: dict[str, Path], tmp_path: Path) -> None:
    """With best_fit no row begins inside a document that would fit into it; long documents can have a share of their own."""
    phases = [{"until": 1, "weights": {"early@40+": 1.0}}]
    source = shard_source(
        inputs, pretrain_config(packing="best_fit", phases=phases, sequence_length=256, batch_tokens=512)
    )
    shards = Shards(inputs["shards"]).source("early")
    bounds = [*shards.starts.tolist(), len(shards)]
    documents = [tuple(shards.read(begin, end).tolist()) for begin, end in pairwise(bounds)]
    whole = {text[:-1] for text in documents if 40 <= len(text) <= 257}
    found = set()
    for step in range(12):
        for batch in source.batches(step)[0]:
            for tokens, numbers in zip(batch.tokens, batch.documents, strict=True):
                found |= {tuple(tokens[numbers == number].tolist()) for number in numbers.unique() if number >= 0}
    assert whole <= found
    assert all(len(text) >= 39 for text in found if text in {document[:-1] for document in documents})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tokens": "1.28K", "steps": 9},
            r"steps \(9\) and tokens \(1.28K\) are two lengths of one run; .* are 10 steps",
        ),
        ({"tokens": "many", "steps": "unset"}, "no whole number of tokens: write 1_000_000, 500B, 11.2T or 16Mi"),
        ({"steps": "unset"}, "Field required"),
        ({"batch_tokens": 100}, r"batch_tokens \(100\) must be a multiple of sequence_length \(32\)"),
        ({"keep_optimizer": True}, "keep_optimizer needs from_step"),
        ({"from_step": 3}, "from_step goes on from an input checkpoint, model starts a new one"),
        ({"phases": [{"weights": {"a": 1}}]}, "a phase needs an end"),
        ({"phases": [{"until": 1, "until_tokens": 3, "weights": {"a": 1}}]}, "at until or at until_tokens"),
        ({"phases": [{"plateau": {"min_improvement": 0}, "weights": {"a": 1}}]}, "the last phase has no next one"),
        (
            {"phases": [{"plateau": {"min_improvement": 0}, "weights": {"a": 1}}, {"until": 1, "weights": {"a": 1}}]},
            r"a plateau needs 4 validations \(window \+ 1\), and 4 steps have 2: lower validate_every \(2\)",
        ),
        ({"phases": [{"until": 1, "weights": {"a": -1, "b": 2}}]}, "greater than or equal to 0"),
        ({"phases": [{"until": 1, "weights": {"a": 0}}]}, "no source has a weight above 0"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "less than 1"),
        ({"optimizer": {"kind": "muon", "betas": [-0.1, 0.9]}}, "greater than or equal to 0"),
        (
            {"phases": [{"until": 0.5, "weights": {"a": 1}}, {"until_tokens": 128, "weights": {"a": 1}}]},
            r"rising shares of the steps, the last at 1; they end at \[0.5, 0.25\]",
        ),
        ({"schedule": {"warmup": 5, "kind": "cosine"}}, r"the warmup \(5 steps\) is longer than the run \(4 steps\)"),
    ],
)
def test_options_that_contradict_each_other(changes: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pretrain_config(**changes)


def test_tokens_and_steps_are_two_names_of_one_length() -> None:
    config = pretrain_config(steps="unset", tokens="1.28K")
    assert config.steps == 10 and config.total_tokens == 1280
    assert PretrainConfig.model_validate(config.model_dump(mode="json")) == config, "as it is stored with the stage"
