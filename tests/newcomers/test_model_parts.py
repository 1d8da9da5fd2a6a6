"""Parts of a model, an optimizer and a model family from outside the package, as docs/guides show them, in real runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import MistralConfig, MistralForCausalLM

import ingot
from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.checkpoints.state_files import stored_shapes
from ingot.model.count import count
from ingot.model.describe import describe_block
from ingot.model.mixers.cache import CacheShape
from ingot.model.positions.rope import frequencies
from ingot.model.transformer import Transformer
from ingot.planner.plan import make_plan
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.files import read_json, read_jsonl, write_json
from tests.train.pretraining import CONFIG, write_inputs

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = (GUIDES / "model-part.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, flags=re.DOTALL))


def write_recipe(folder: Path, inputs: dict[str, Path]) -> Path:
    """The recipe that the guide begins with, on small shards, and the files beside it."""
    for name, code in FILES.items():
        (folder / name).write_text(code, encoding="utf-8")
    shown = re.search(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert shown is not None
    stage = {**CONFIG, "steps": 4, "checkpoints": {"every": 2, "keep_every": 2}, **yaml.safe_load(shown[1])["pretrain"]}
    stage["inputs"] = {name: str(path) for name, path in inputs.items()}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "stages": {"pretrain": stage}}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    return write_recipe(folder, write_inputs(folder))


@pytest.fixture(scope="module")
def stage(recipe: Path) -> Path:
    """The folder of the stage, trained with all parts of the guide together."""
    return run_recipe(load_recipe(recipe), recipe.parent / "runs").stages[0].folder


@pytest.fixture(scope="module")
def model(stage: Path) -> Transformer:
    """The model, from its checkpoint: which knows its parts by their files."""
    return ingot.load(stage)


def test_the_recipe_is_planned_and_its_files_are_part_of_the_work(recipe: Path, stage: Path) -> None:
    runs = recipe.parent / "runs"
    assert [each.name for each in make_plan(load_recipe(recipe), runs, gpus=2, gpu="h100").stages] == ["pretrain"]
    assert len(FILES) == 6
    for name in FILES:
        file = recipe.parent / name
        assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["done"]
        before = file.read_text(encoding="utf-8")
        file.write_text(before + "# changed\n", encoding="utf-8")
        assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"], name
        file.write_text(before, encoding="utf-8")


def test_a_mixer(model: Transformer) -> None:
    mixer: Any = model.blocks[0].mixer
    assert describe_block(model.config.block(0)) == "moving average of 24 channels; bilinear feed-forward 48"
    assert torch.count_nonzero(mixer.decay) == 24  # began at zero, and trained
    tokens = torch.arange(12)[None] + 5
    with torch.no_grad():
        whole = model(tokens)
        caches = model.make_caches(CacheShape(slots=2, length=12))
        positions, slot = torch.arange(12)[None], torch.tensor([1])
        pieces = [slice(0, 5), *(slice(place, place + 1) for place in range(5, 12))]
        parts = [
            model.head(model.hidden(tokens[:, one], positions[:, one], caches=caches, slots=slot)) for one in pieces
        ]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert isinstance(ingot.generate(model, "def ", max_new_tokens=4), str)


def test_a_feed_forward(model: Transformer) -> None:
    part: Any = model.blocks[0].feed_forward
    counted = count(model.config)
    assert counted.total == sum(each.numel() for each in model.parameters())
    x = torch.randn(1, 3, 32)
    left, right = x @ part.left.weight.T, x @ part.right.weight.T
    torch.testing.assert_close(part(x, None), (left * right) @ part.down.weight.T)


def test_a_balancer(stage: Path) -> None:
    losses = [row["router/variance_loss"] for row in read_jsonl(stage / "metrics.jsonl") if "loss" in row]
    assert len(losses) == 4 and all(0.01 <= loss < 0.02 for loss in losses)  # the coefficient, where all is equal


def test_a_position_scaling(model: Transformer) -> None:
    mixer = model.config.block(1).mixer
    assert mixer is not None and "ntk" in mixer.describe()
    rope = mixer.model_copy().rope  # type: ignore[attr-defined]
    found, _ = frequencies(rope, 16, torch.device("cpu"))
    pairs = torch.arange(0, 16, 2)
    torch.testing.assert_close(found, 1 / (10_000 * 4 ** (16 / 14)) ** (pairs / 16))


def test_an_attention_backend(model: Transformer) -> None:
    mixer: Any = model.blocks[1].mixer
    tokens = torch.arange(12)[None] + 5
    documents = torch.tensor([[0] * 5 + [1] * 4 + [-1] * 3])
    own = mixer.backend
    with torch.no_grad():
        by_it = model(tokens, documents_BT=documents)
        mixer.backend = None
        by_ours = model(tokens, documents_BT=documents)
        mixer.backend = lambda *given: torch.zeros_like(own(*given))
        by_none = model(tokens, documents_BT=documents)
        mixer.backend = own
    torch.testing.assert_close(by_it, by_ours)
    assert (by_none - by_ours).abs().max() > 1e-3


def test_an_optimizer(recipe: Path, stage: Path, model: Transformer) -> None:
    """Lion's state is in the checkpoints, and a run that goes on from one ends with the same weights."""
    steps = sorted((stage / "steps").iterdir())
    names = stored_shapes(steps[0] / "state")
    assert {name.rpartition(".")[2] for name in names if name.startswith("optimizer.state.")} == {"momentum"}
    half = recipe.parent / "half" / "mine" / stage.name
    shutil.copytree(steps[0], half / "steps" / steps[0].name)
    again = run_recipe(load_recipe(recipe), recipe.parent / "half").stages[0].folder
    assert again == half and read_json(half / "start.json")["first_step"] == 2
    for name, value in ingot.load(again).state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    first, second = (ingot.load(each) for each in steps[:2])
    moved = (second.embedding.weight - first.embedding.weight).abs().max()
    assert 0 < moved <= 2.1e-3  # two steps of at most the rate, whatever the gradient


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("moving_average.py:MovingAverage", "moving_average.py:MovingAvrage", "did you mean MovingAverage?"),
        ("bilinear.py:Bilinear", "moving_average.py:MovingAverage", "the base class of every feed-forward"),
        ("kind: moe", "kind: mo", "there is no feed-forward mo\n  fix: did you mean moe?"),
        ("variance.py:Variance", "varianc.py:Variance", "there is no file"),
        ("coefficient: 0.01", "coeficient: 0.01", "did you mean coefficient?"),
        ("ntk.py:Ntk", "yern", "there is no position scaling yern\n  fix: did you mean yarn?"),
        ("softmax.py:attend", "softmax.py:atend", "did you mean attend?"),
        ("backend: ", "softcap: 30.0\n            backend: ", "softcap: the backend attend does not say"),
        ("lion.py:Lion", "lion.py:Steps", "the base class of every optimizer"),
        ("lr: 1e-3", "lr: -1", "optimizer.lr: input should be greater than 0"),
        ("sequence_length: 32", "mesh: {context: 2, context_method: ring}\n    sequence_length: 32", "no backend"),
        ("      blocks:", "      initial: {base_width: 16}\n      blocks:", "width_share"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    text = recipe.read_text(encoding="utf-8")
    assert old in text, text
    (tmp_path / "recipe.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "recipe.yaml")
    assert said in str(caught.value) and "recipe.yaml:" in str(caught.value)


def test_a_part_that_lacks_a_method_says_which(tmp_path: Path) -> None:
    code = "from ingot.model.mixers.mixer import MixerConfig\n\n\nclass Half(MixerConfig):\n    pass\n"
    (tmp_path / "half.py").write_text(code, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"half\.py:Half has no build and no describe and no input_width"):
        from ingot.model.mixers.config import MIXERS

        MIXERS.find(f"{tmp_path}/half.py:Half")


def test_a_checkpoint_without_its_file_says_so_and_runs_no_code_of_its_own(model: Transformer, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", model)
    path = tmp_path / "checkpoint" / "config.json"
    values = read_json(path)
    mixer = values["blocks"]["average"]["mixer"]
    for kind, said in (
        (f"{tmp_path}/gone.py:MovingAverage", "there is no file"),
        (f"{tmp_path}/checkpoint/evil.py:MovingAverage", "names code that came with it"),
        ("checkpoint/evil.py:MovingAverage", "names code that came with it"),
    ):
        mixer["kind"] = kind
        write_json(path, values)
        (tmp_path / "checkpoint" / "manifest.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ArtifactError, match=said) as caught:
            ingot.load(tmp_path / "checkpoint")
        assert str(path) in str(caught.value)


@pytest.fixture
def mistral(tmp_path: Path) -> tuple[str, Path]:
    """The family that docs/guides/add-a-family.md shows, in a file, and a model of transformers of that type."""
    shown = re.search(r"```python\n(.*?)```", (GUIDES / "add-a-family.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    (tmp_path / "mistral.py").write_text(shown[1], encoding="utf-8")
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 40}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "sliding_window": 5}
    torch.manual_seed(0)
    MistralForCausalLM(MistralConfig(**sizes, **heads)).save_pretrained(tmp_path / "theirs")
    return f"{tmp_path}/mistral.py:MISTRAL", tmp_path / "theirs"


def test_a_model_family(mistral: tuple[str, Path], tmp_path: Path) -> None:
    """A model goes in and out with its bits, and computes what it computed there."""
    family, theirs = mistral
    values = read_json(theirs / "config.json")
    write_json(theirs / "config.json", {**values, "model_type": "mistral_2"})
    with pytest.raises(ArtifactError, match="unknown model type 'mistral_2'"):
        ingot.import_model(theirs, tmp_path / "none")
    write_json(theirs / "config.json", values)
    ingot.import_model(theirs, tmp_path / "ours", family=family)
    ours = ingot.load(tmp_path / "ours")
    assert ours.config.export_as == family
    before, tokens = MistralForCausalLM.from_pretrained(theirs), torch.arange(12)[None] + 5
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), before(tokens).logits, rtol=1e-5, atol=1e-5)
    ingot.export_model(tmp_path / "ours", tmp_path / "back")  # the checkpoint remembers the family
    assert read_json(tmp_path / "back" / "config.json")["model_type"] == "mistral"
    after = MistralForCausalLM.from_pretrained(tmp_path / "back").state_dict()
    assert after.keys() == before.state_dict().keys()
    assert all(torch.equal(after[name], value) for name, value in before.state_dict().items())
    with pytest.raises(RecipeError, match="MISTRL"):
        ingot.import_model(theirs, tmp_path / "none", family=family.replace("MISTRAL", "MISTRL"))
    (tmp_path / "mistral.py").unlink()
    with pytest.raises(RecipeError, match="there is no file"):
        ingot.export_model(tmp_path / "ours", tmp_path / "gone")
