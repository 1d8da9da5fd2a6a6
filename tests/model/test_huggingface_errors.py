"""What cannot be exported or imported says so, with the names of what is in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ingot.model.config import FeedForwardConfig, ModelConfig, RopeConfig
from ingot.model.huggingface import export_huggingface, import_huggingface
from ingot.model.huggingface_config import huggingface_config
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import attention, config, random_model


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            config(attention(query_key_norm=True, query_key_value_bias=True)),
            "no Hugging Face model type that Ingot knows has query_key_norm=True, query_key_value_bias=True",
        ),
        (config(attention(query_key_norm=True, rope=None)), "layers without positions=True together"),
        (config(attention(), attention(heads=2)), "layers differ in heads (4, 2)"),
        (config(attention(), attention(head_width=6)), "layers differ in head_width (8, 6)"),
        (config(attention(), attention(query_key_norm=True)), "layers differ in query_key_norm (False, True)"),
        (config(attention(), attention(rope=RopeConfig(base=50.0))), "layers differ in rope base (10000.0, 50.0)"),
        (config(attention(window=2), attention(window=3)), "layers differ in window (2, 3)"),
    ],
)
def test_what_no_model_type_has_is_refused(shape: ModelConfig, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        export_huggingface(random_model(shape), tmp_path / "model")
    assert message in str(caught.value)
    assert "fix:" in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_layers_with_different_feed_forwards_are_refused() -> None:
    first = config().blocks[0]
    second = first.model_copy(update={"feed_forward": FeedForwardConfig(width=40, activation="gelu_tanh")})
    with pytest.raises(ArtifactError, match="layers differ in activation"):
        huggingface_config(config(blocks=[first, second]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export_huggingface(random_model(config(tied_embeddings=False)), tmp_path / "model")
    return tmp_path / "model"


def change_config(folder: Path, **changes: Any) -> None:
    source = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in {**source, **changes}.items() if value != "remove"}
    (folder / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba2"}, "unknown model type 'mamba2'"),
        ({"model_type": "remove"}, "unknown model type None"),
        ({"hidden_size": "remove", "vocab_size": "remove"}, "hidden_size, vocab_size missing"),
        ({"hidden_act": "relu"}, "unknown hidden_act 'relu'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, '"rope_type": "yarn"'),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, '"type": "linear"'),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"num_key_value_heads": 3}, "heads (4) must be a multiple of key_value_heads (3)"),
        ({"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 4}, "which layers have the window"),
    ],
)
def test_a_configuration_that_ingot_cannot_build(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(ArtifactError) as caught:
        import_huggingface(folder)
    assert message in str(caught.value)
    assert str(folder / "config.json") in str(caught.value)


def test_an_unknown_model_type_lists_the_known_ones(folder: Path) -> None:
    change_config(folder, model_type="gpt2")
    with pytest.raises(ArtifactError, match="import one of: llama, smollm3, qwen2, qwen3"):
        import_huggingface(folder)


def rewrite(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_unmapped_and_missing_tensors_are_listed(folder: Path) -> None:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.self_attn.sinks"] = torch.zeros(4)
        del tensors["model.layers.0.mlp.up_proj.weight"], tensors["model.norm.weight"]

    rewrite(folder, edit)
    with pytest.raises(ArtifactError) as caught:
        import_huggingface(folder)
    assert "unmapped model.layers.1.self_attn.sinks" in str(caught.value)
    assert "missing model.norm.weight, model.layers.0.mlp.up_proj.weight" in str(caught.value)


def test_an_output_bias_has_no_place(folder: Path) -> None:
    change_config(folder, attention_bias=True)
    names = {"q_proj": 32, "k_proj": 16, "v_proj": 16, "o_proj": 24}

    def edit(tensors: dict[str, torch.Tensor]) -> None:
        for layer in range(2):
            tensors |= {f"model.layers.{layer}.self_attn.{name}.bias": torch.ones(size) for name, size in names.items()}

    rewrite(folder, edit)
    with pytest.raises(ArtifactError) as caught:
        import_huggingface(folder)
    assert "unmapped model.layers.0.self_attn.o_proj.bias, model.layers.1.self_attn.o_proj.bias" in str(caught.value)


def test_a_long_list_of_names_is_cut(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({f"adapter.{n:02d}": torch.zeros(1) for n in range(14)}))
    with pytest.raises(ArtifactError, match=r"adapter\.09 and 4 more"):
        import_huggingface(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.layers.1.self_attn.k_proj.weight": torch.zeros(8, 24)}))
    with pytest.raises(ArtifactError, match=r"layers\.1\.self_attn\.k_proj\.weight is \[8, 24\].*asks for \[16, 24\]"):
        import_huggingface(folder)


def test_a_head_that_is_not_the_tied_embedding(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    with pytest.raises(ArtifactError, match=r"lm_head\.weight is another matrix"):
        import_huggingface(folder)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    assert import_huggingface(folder).config.tied_embeddings


def test_whether_the_head_is_tied_follows_from_the_weights_where_the_config_is_silent(folder: Path) -> None:
    change_config(folder, tie_word_embeddings="remove")
    assert not import_huggingface(folder).config.tied_embeddings
    rewrite(folder, lambda tensors: tensors.__delitem__("lm_head.weight"))
    assert import_huggingface(folder).config.tied_embeddings


def test_a_damaged_or_missing_file_is_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ArtifactError, match=r"model\.safetensors: not readable"):
        import_huggingface(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"config\.json: not readable"):
        import_huggingface(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    index = {"weight_map": dict.fromkeys(names, "model.safetensors") | {"lm_head.weight": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ArtifactError, match=r"part-2\.safetensors: a weight file is missing"):
        import_huggingface(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"index\.json: no weight_map"):
        import_huggingface(folder)
