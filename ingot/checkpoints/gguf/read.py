"""Reads the model in a GGUF file, by translating it to Hugging Face names.

llama.cpp has its own names for the keys of config.json and for the tensors, and the model is otherwise the same, so a file is
translated into the words of Hugging Face and read by the same table of families as a Hugging Face folder.

One thing is not a name. For some architectures llama.cpp pairs neighbouring channels in the rotation (2i and 2i + 1)
where Hugging Face pairs halves (i and i + w/2), and reorders the rows of the query and key projections to suit:

    row of Hugging Face, within a head    i     i + w/2
    row of GGUF                          2i      2i + 1

Invariant: every tensor of the file and every key of its architecture is used, or the error lists it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.checkpoints.families.table import read_config
from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.tokenizer import tokenizer_files
from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.checkpoints.translate import to_parameters
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import frequencies
from ingot.model.positions.scaling import Llama3Scaling
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError

REORDERED = {"llama": True, "smollm3": True, "qwen2": False, "qwen3": False}
"""The architectures that Ingot reads (named as Hugging Face names them), and whether query and key rows are reordered."""

KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
NEEDED = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
LARGEST = 1 << 26
ROPE_KEYS = {
    "type": "rope_type",
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
INERT = {"tensor_data_layout", "rope.scaling.finetuned"}
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")
DIVISORS = "rope_freqs.weight"  # a divisor for each frequency: how llama.cpp stores the scaling of Llama 3
FIX = "import the model from its Hugging Face folder, or leave this part out"


def read_gguf(path: Path, *, tokenizer: bool = True) -> Transformer:
    """The model of a GGUF file in float32, with its tokenizer attached; `tokenizer=False` leaves that out."""
    return open_gguf(path, tokenizer=tokenizer).load()


def open_gguf(path: Path, *, tokenizer: bool = True) -> StoredModel:
    """The same without reading its weights: they are read when they are used."""
    file, place = GgufFile(path), str(path)
    family, config = read_config(huggingface_config(file), place)
    tensors, layout = GgufTensors(file), family.layout(config)
    problems = {
        "not understood": [ours for theirs, ours in tensors.names.items() if theirs not in layout],
        "missing": [f"the tensor for {theirs}" for theirs in layout if theirs not in tensors.names],
    }
    if any(problems.values()):
        listed = "; ".join(f"{word}: {', '.join(found)}" for word, found in problems.items() if found)
        raise ArtifactError(f"the tensors are not those of a {family.types[0]} model: {listed}", place=place, fix=FIX)
    parameters = to_parameters(tensors, layout, shapes(config), place)
    return StoredModel(config, parameters, tokenizer_files(file.metadata, place) if tokenizer else {}, place)


class GgufTensors(Tensors):
    """The tensors of a file in float32, under the names and in the order of rows that Hugging Face gives them."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.names = {_huggingface_name(name): name for name in file.tensors if name != DIVISORS}
        self.entries = {theirs: Entry(file.tensors[ours].shape, torch.float32) for theirs, ours in self.names.items()}
        architecture = file.metadata["general.architecture"]
        self._heads: dict[str, int] = {}
        if REORDERED[architecture]:
            heads = _plain(file.metadata[f"{architecture}.attention.head_count"])
            self._heads = {
                "attn_q": heads,
                "attn_k": _plain(file.metadata.get(f"{architecture}.attention.head_count_kv", heads)),
            }

    def rows(self, name: str, start: int, end: int) -> Tensor:
        ours = self.names[name]
        heads = self._heads.get(ours.split(".")[-2])
        if heads is None:
            return torch.from_numpy(self.file.read(ours, slice(start, end)))
        return torch.from_numpy(self.file.read(ours, halves_first(self.entries[name].rows, heads)[start:end]))


def huggingface_config(file: GgufFile) -> dict[str, Any]:
    """The keys that the config.json of the same model has."""
    place, architecture = str(file.path), file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in REORDERED:
        raise ArtifactError(
            f"unknown architecture {architecture!r}", place=place, fix=f"known are {', '.join(REORDERED)}"
        )
    prefix = f"{architecture}."
    given = {key.removeprefix(prefix): _plain(value) for key, value in file.metadata.items() if key.startswith(prefix)}
    values = {theirs: given.pop(ours) for ours, theirs in KEYS.items() if ours in given}
    rope = {theirs: given.pop(f"rope.scaling.{ours}", None) for ours, theirs in ROPE_KEYS.items()}
    _check_numbers(values, file, prefix)
    width = values.setdefault("head_dim", values["hidden_size"] // values["num_attention_heads"])
    rows = _check_shapes(values, file)
    # These say again what is said elsewhere; another value would be another model.
    expected = {"vocab_size": rows, "rope.dimension_count": width, "attention.value_length": width, "expert_count": 0}
    problems = [key for key, value in given.items() if key not in INERT and value != expected.get(key, object())]
    if problems:
        listed = ", ".join(f"{prefix}{key} = {given[key]!r}" for key in sorted(problems))
        raise ArtifactError(f"keys that Ingot does not understand: {listed}", place=place, fix=FIX)
    values |= {
        "model_type": architecture,
        "vocab_size": rows,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    if "blk.0.attn_q.bias" in file.tensors and "blk.0.attn_output.bias" in file.tensors:
        values["attention_bias"] = True
    if rope["rope_type"] not in (None, "none"):
        values["rope_scaling"] = {key: value for key, value in rope.items() if value is not None}
    if DIVISORS in file.tensors:
        values["rope_scaling"] = _divided(file.read(DIVISORS), values, place)
    return values


def _check_numbers(values: Mapping[str, Any], file: GgufFile, prefix: str) -> None:
    """Refuse what no model has, before anything of that size is built."""
    most = {"num_hidden_layers": len(file.tensors), "rope_theta": 1e12}
    problems = [
        f"{prefix}{ours} = {values.get(theirs)!r}"
        for ours, theirs in KEYS.items()
        if theirs in values or theirs in NEEDED
        if type(values.get(theirs)) not in (int, float) or not 0 < values[theirs] <= most.get(theirs, LARGEST)
    ]
    if problems:
        raise ArtifactError(f"no model has {', '.join(problems)}", place=str(file.path), fix="convert the model again")


def _check_shapes(values: Mapping[str, Any], file: GgufFile) -> int:
    """Refuse widths that are not those of the first tensors; the number of rows of the embedding."""
    embedding, query = file.tensors.get("token_embd.weight"), file.tensors.get("blk.0.attn_q.weight")
    if embedding is None or query is None:
        raise ArtifactError(
            "no token_embd.weight or no blk.0.attn_q.weight", place=str(file.path), fix="convert the model again"
        )
    width, heads, head = values["hidden_size"], values["num_attention_heads"], values["head_dim"]
    if embedding.shape[1:] != (width,) or query.shape != (heads * head, width):
        raise ArtifactError(
            f"an embedding of {embedding.shape} and queries of {query.shape} in a model of width {width} with {heads} "
            f"heads of {head}",
            place=str(file.path),
            fix="convert the model again",
        )
    return embedding.shape[0]


def _plain(value: Any) -> Any:
    """A number as it was meant: 1e-5 is stored as the float32 next to it; a list of equal numbers is that number."""
    if isinstance(value, list) and value and all(one == value[0] for one in value):
        return _plain(value[0])
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _divided(divisors: NDArray[np.float32], values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The scaling that divides each frequency so: of Llama 3 if it is one, with the constants that Meta uses."""
    base, width = values.get("rope_theta", 10_000.0), values["head_dim"]
    scaling = Llama3Scaling(factor=float(divisors.max()), original_context=8192)
    cpu = torch.device("cpu")
    plain, _ = frequencies(RopeConfig(base=base), width, cpu)
    scaled, _ = frequencies(RopeConfig(base=base, scaling=scaling), width, cpu)
    given = torch.from_numpy(divisors)
    if given.shape != plain.shape or not torch.allclose(plain / scaled, given, rtol=1e-4):
        raise ArtifactError(
            f"{DIVISORS} is not the scaling of Llama 3 over 8192 positions by {scaling.factor:g}", place=place, fix=FIX
        )
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low,
        "high_freq_factor": scaling.high,
        "original_max_position_embeddings": scaling.original_context,
    }


def _huggingface_name(name: str) -> str:
    found = NAME.fullmatch(name)
    if found is None or found[2] not in TENSORS:
        return f"not understood: {name}"
    layer = f"model.layers.{found[1]}." if found[1] is not None else ""
    return f"{layer}{TENSORS[found[2]]}.{found[3]}"


def halves_first(rows: int, heads: int) -> NDArray[np.int64]:
    """The order of rows in which, within each head, the even ones come before the odd ones."""
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).ravel()
