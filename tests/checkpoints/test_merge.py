"""Merged models beside mergekit's, by recorded numbers (mergekit_numbers.py); what cannot be merged; the memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from typer.testing import CliRunner

from ingot.checkpoints.checkpoint import load_model, open_model, save_checkpoint
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.merge import merge, merged
from ingot.checkpoints.merge_config import MergeConfig
from ingot.checkpoints.merge_methods import keep_random, merge_tensor
from ingot.cli.app import app
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError, RecipeError
from tests.checkpoints.mergekit_numbers import METHODS, RECORD, delta, fingerprints, make_models
from tests.model.tiny import config, random_model

NUMBERS: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
DIFFERENCES = ("task_arithmetic", "ties", "dare_linear", "dare_ties")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


def exported(checkpoint: Path) -> dict[str, torch.Tensor]:
    folder = export_model(checkpoint, checkpoint.with_name("exported"))
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.parametrize("method", METHODS)
def test_mergekits_numbers(method: str, models: list[Path], tmp_path: Path) -> None:
    assert NUMBERS["mergekit"] == "0.1.5"
    options = MergeConfig.model_validate({"method": method, **METHODS[method]})
    base = models[0] if method in DIFFERENCES else None
    merge(models[1:], options, tmp_path / "merged", base=base)
    ours, theirs = fingerprints(exported(tmp_path / "merged")), NUMBERS[method]
    assert ours.keys() == theirs.keys()
    for name, numbers in ours.items():
        assert numbers == pytest.approx(theirs[name], rel=1e-5, abs=1e-5), name


def test_what_dare_keeps_is_mergekits() -> None:
    ours = keep_random(delta(), 0.6, torch.Generator().manual_seed(4), by_norm=True)
    torch.testing.assert_close(ours, torch.tensor(NUMBERS["dare"]))


def test_the_paper_rescales_by_the_density() -> None:
    """Dropping a share and dividing by what is kept leaves the expectation as it was (arXiv 2311.03099, section 3.1)."""
    difference, generator = delta(), torch.Generator().manual_seed(0)
    mean = sum(keep_random(difference, 0.3, generator, by_norm=False) for _ in range(4000)) / 4000
    assert isinstance(mean, torch.Tensor)
    assert float((mean - difference).norm() / difference.norm()) < 0.05
    kept = keep_random(difference, 0.3, generator, by_norm=False)
    torch.testing.assert_close(kept[kept != 0], difference[kept != 0] / 0.3)


def test_all_of_dare_is_task_arithmetic(models: list[Path]) -> None:
    base, *others = (open_model(path) for path in models)
    weights = (0.7, 0.4)
    dare, plain = (
        MergeConfig(method="dare_linear", weights=weights, density=1.0),
        MergeConfig(method="task_arithmetic", weights=weights),
    )
    one, other = (merged(others, options, base).load().state_dict() for options in (dare, plain))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_seed_decides_what_dare_drops(models: list[Path]) -> None:
    base, *others = (open_model(path) for path in models)
    options = MergeConfig(method="dare_ties", density=0.5)
    one, same, another = (merged(others, options, base, seed).load().state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not torch.equal(one["embedding.weight"], another["embedding.weight"])


def test_the_command(models: list[Path], tmp_path: Path) -> None:
    words = ["merge", str(models[1]), str(models[2]), "--method", "slerp", "--t", "0.3", "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert fingerprints(exported(tmp_path / "out"))["lm_head.weight"] == pytest.approx(
        NUMBERS["slerp"]["lm_head.weight"], rel=1e-5, abs=1e-5
    )
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0 and isinstance(again.exception, ArtifactError)


USED = {
    "linear": {"weights", "normalise"},
    "slerp": {"t"},
    "task_arithmetic": {"weights", "normalise", "scale", "base"},
    "ties": {"weights", "normalise", "scale", "base", "density"},
    "dare_linear": {"weights", "normalise", "scale", "base", "density", "rescale"},
    "dare_ties": {"weights", "normalise", "scale", "base", "density", "rescale"},
}
ANOTHER = {
    **{"weights": (2.0, 5.0), "t": 0.2, "density": 0.8, "scale": 0.5, "normalise": True, "rescale": "density"},
    "base": "start",
}


@pytest.mark.parametrize("method", USED)
def test_a_method_takes_its_own_options_only(method: str) -> None:
    """Each option changes what the method makes of a tensor, or it is refused; defaults that are written out are not."""
    tensors = [torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]

    def made(options: MergeConfig) -> torch.Tensor:
        weights, base = options.weights or (1.0, 1.0), tensors[2] if method in DIFFERENCES else None
        return merge_tensor(
            options, tensors.__getitem__, weights, base, lambda model: torch.Generator().manual_seed(model)
        )

    plain = MergeConfig.model_validate({"method": method})
    assert MergeConfig.model_validate(plain.model_dump()) == plain
    usual = made(plain)
    for name, value in ANOTHER.items():
        if name not in USED[method]:
            with pytest.raises(ValidationError, match=f"{name}: "):
                MergeConfig.model_validate({"method": method, name: value})
            continue
        if (method, name) in (("linear", "normalise"), ("ties", "normalise")):
            value = False
        options = MergeConfig.model_validate({"method": method, name: value})
        assert name == "base" or not torch.equal(made(options), usual), name


def test_the_command_refuses_what_the_method_does_not_use(models: list[Path], tmp_path: Path) -> None:
    command = ["merge", str(models[1]), str(models[2]), "--to", str(tmp_path / "out")]
    for words in (["--scale", "0.5"], ["--t", "0.4"], ["--seed", "0"]):
        done = CliRunner().invoke(app, command + words)
        assert isinstance(done.exception, RecipeError) and f"{words[0][2:]}: " in str(done.exception), words


def test_what_cannot_be_merged_is_refused(models: list[Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    mean, ties = MergeConfig(), MergeConfig(method="ties")
    base, one, other = (open_model(path) for path in models)
    with pytest.raises(RecipeError, match="at least two models, given 1"):
        merged([one], mean)
    with pytest.raises(RecipeError, match="slerp merges two models, given 3"):
        merged([base, one, other], MergeConfig(method="slerp"))
    with pytest.raises(RecipeError, match="differences from a base"):
        merged([one, other], ties)
    with pytest.raises(RecipeError, match="linear takes no base"):
        merged([one, other], mean, base)
    with pytest.raises(RecipeError, match="3 weights for 2 models"):
        merged([one, other], MergeConfig(weights=(1.0, 1.0, 1.0)))
    tiny = random_model(config())
    save_checkpoint(tmp_path / "tiny", tiny)
    with pytest.raises(ArtifactError, match=r"another architecture than .*width"):
        merged([one, open_model(tmp_path / "tiny")], mean)
    shape = config(vocabulary_size=tokenizer.vocabulary_size)
    for name, given in (("with", tokenizer), ("without", None)):
        model = random_model(shape)
        model.tokenizer = given
        save_checkpoint(tmp_path / name, model)
    with pytest.raises(ArtifactError, match="another tokenizer"):
        merged([open_model(tmp_path / "with"), open_model(tmp_path / "without")], mean)


def test_a_model_of_no_family_is_merged_too(tmp_path: Path) -> None:
    shape = config(logit_scale=0.5, logit_softcap=9.0)
    weights = []
    for seed in range(3):
        model = random_model(shape, seed)
        weights.append(model.state_dict())
        save_checkpoint(tmp_path / str(seed), model)
    merge([tmp_path / str(seed) for seed in range(3)], MergeConfig(weights=(1.0, 2.0, 5.0)), tmp_path / "soup")
    for name, value in load_model(tmp_path / "soup").state_dict().items():
        expected = (weights[0][name] + 2 * weights[1][name] + 5 * weights[2][name]) / 8
        torch.testing.assert_close(value, expected)


MEASURE = """
import resource, sys
from pathlib import Path
from ingot.checkpoints.merge import merge
from ingot.checkpoints.merge_config import MergeConfig
folder, count, method = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
paths = [folder / "model"] * count
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
merge(paths, MergeConfig(method=method), folder / f"{method}{count}", base=paths[0] if method == "ties" else None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "ties"])
def test_the_memory_does_not_depend_on_how_many_models_there_are(method: str, tmp_path: Path) -> None:
    model = random_model(config(width=256, depth=24, vocabulary_size=2048))
    save_checkpoint(tmp_path / "model", model)
    used = [
        int(
            subprocess.run(
                [sys.executable, "-c", MEASURE, str(tmp_path), count, method], capture_output=True, check=True
            ).stdout
        )
        for count in ("2", "8")
    ]
    largest = 2048 * 256 * 4
    assert used[1] - used[0] < 4 * largest
