"""What cannot be exported or imported says so, with the names of what is in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import ingot
from ingot.checkpoints.convert import export_model, import_model
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.positions.config import RopeConfig
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import attention, config, random_model


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (config(attention(), attention(heads=2)), "llama: layers[1].mixer.heads is 2, it would become 4"),
        (config(attention(), attention(head_width=6)), "llama: layers[1].mixer.head_width is 6, it would become 8"),
        (config(attention(), attention(query_key_norm="head")), "layers[0].mixer.query_key_norm is 'none', it would"),
        (config(attention(window=2), attention(window=3)), "qwen3: layers[0].mixer.query_key_norm is"),
    ],
)
def test_what_no_model_type_has_is_refused(shape: ModelConfig, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        export_model(random_model(shape), tmp_path / "model")
    assert "no Hugging Face model type that Ingot knows can express this model" in str(caught.value)
    assert message in str(caught.value)
    assert "fix:" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_model_type_that_cannot_express_the_model_says_what_would_be_lost(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"qwen3: .*query_key_norm is 'none', it would become 'head'"):
        export_model(random_model(config()), tmp_path / "model", model_type="qwen3")
    with pytest.raises(ArtifactError, match=r"unknown model type 'gpt5'\n  fix: known are: .*llama"):
        export_model(random_model(config()), tmp_path / "model", model_type="gpt5")
    export_model(random_model(config()), tmp_path / "model", model_type="smollm3")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "smollm3"


def test_layers_with_different_feed_forwards_are_refused(tmp_path: Path) -> None:
    blocks = dict(config(attention(), attention()).blocks)
    name = next(iter(blocks))
    other = FeedForwardConfig(width=40, activation="gelu_tanh")
    blocks[name] = blocks[name].model_copy(update={"feed_forward": other})
    with pytest.raises(ArtifactError, match="activation is 'silu', it would become 'gelu_tanh'"):
        export_model(random_model(config(attention(), attention(), blocks=blocks)), tmp_path / "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shape = config(attention(rope=RopeConfig(base=50.0)), tied_embeddings=False)
    return export_model(random_model(shape), tmp_path / "model")


def change_config(folder: Path, **changes: Any) -> None:
    source = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in {**source, **changes}.items() if value != "remove"}
    (folder / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "unknown model type 'gpt2'\n  fix: known are: "),
        ({"model_type": "remove"}, "unknown model type None"),
        ({"hidden_size": "remove"}, "hidden_size is missing"),
        ({"hidden_act": "tanh"}, "hidden_act = 'tanh'; known are"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}, "rope_type 'dynamic'"),
        (
            {"use_alibi": True, "layer_scale": 0.5},
            "keys that Ingot does not understand: layer_scale = 0.5, use_alibi = True",
        ),
        ({"num_key_value_heads": 3}, "heads (4) must be a multiple of key_value_heads (3)"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantised by the method 'aqlm'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "float8 weights without weight_block_size"),
    ],
)
def test_a_configuration_that_ingot_cannot_build(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(ArtifactError) as caught:
        ingot.load(folder)
    assert message in str(caught.value)
    assert str(folder / "config.json") in str(caught.value)


def rewrite(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_unknown_and_missing_tensors_are_listed(folder: Path, tmp_path: Path) -> None:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.self_attn.sinks"] = torch.zeros(4)
        del tensors["model.layers.0.mlp.up_proj.weight"], tensors["model.norm.weight"]

    rewrite(folder, edit)
    for read in (ingot.load, lambda folder: import_model(folder, tmp_path / "out")):
        with pytest.raises(ArtifactError) as caught:
            read(folder)
        assert "not understood: model.layers.1.self_attn.sinks" in str(caught.value)
        assert "missing: model.norm.weight, model.layers.0.mlp.up_proj.weight" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_old_buffers_that_follow_from_the_configuration_are_left_out(folder: Path) -> None:
    rewrite(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    ingot.load(folder)


def test_a_long_list_of_names_is_cut(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({f"adapter.{n:02d}": torch.zeros(1) for n in range(14)}))
    with pytest.raises(ArtifactError, match=r"adapter\.09 and 4 more"):
        ingot.load(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.layers.1.self_attn.k_proj.weight": torch.zeros(8, 24)}))
    with pytest.raises(ArtifactError, match=r"layers\.1\.self_attn\.k_proj\.weight is \[8, 24\].*asks for \[16, 24\]"):
        ingot.load(folder)


def test_a_head_that_is_not_the_tied_embedding(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    with pytest.raises(
        ArtifactError, match=r"lm_head\.weight should be a copy of embedding\.weight, but it is another"
    ):
        ingot.load(folder)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    assert ingot.load(folder).config.tied_embeddings


def test_whether_the_head_is_tied_follows_from_the_weights_where_the_config_is_silent(folder: Path) -> None:
    change_config(folder, tie_word_embeddings="remove")
    assert not ingot.load(folder).config.tied_embeddings
    rewrite(folder, lambda tensors: tensors.__delitem__("lm_head.weight"))
    assert ingot.load(folder).config.tied_embeddings


def test_a_damaged_or_missing_file_is_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ArtifactError, match=r"model\.safetensors: not readable as safetensors"):
        ingot.load(folder)
    weights.write_bytes(data)
    (folder / "config.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"config\.json: not readable"):
        ingot.load(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ArtifactError, match=r"config\.json: not a JSON object"):
        ingot.load(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    index = {"weight_map": dict.fromkeys(names, "model.safetensors") | {"lm_head.weight": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ArtifactError, match=r"part-2\.safetensors: a weight file is missing"):
        ingot.load(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"index\.json: no weight_map"):
        ingot.load(folder)


@pytest.mark.parametrize("content", ["{", "3"])
def test_a_damaged_generation_config_is_named(folder: Path, content: str, tmp_path: Path) -> None:
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"generation_config\.json: not a JSON object"):
        export_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
