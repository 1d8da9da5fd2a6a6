"""Reads the model in a GGUF file, by translating its keys to those of a Hugging Face folder.

llama.cpp has its own names for the keys of config.json and for the tensors, and the model is otherwise the same. So the keys
are translated and read by the same table of families as a Hugging Face folder; the family's layout, with the names of
llama.cpp (layout.py), says where each tensor belongs.

Invariant: every tensor of the file and every key of its architecture is used, or the error lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.checkpoints.families.table import read_config
from ingot.checkpoints.gguf.architectures import KEYS, PATTERN, WINDOW, Architecture, architecture_of
from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.layout import EMBEDDING, HEAD, gguf_layout
from ingot.checkpoints.gguf.tokenizer import tokenizer_files
from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.checkpoints.translate import to_parameters
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import frequencies
from ingot.model.positions.scaling import Llama3Scaling
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError

NEEDED = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
LARGEST = 1 << 26
ROWS = 1024  # of the head and the embedding that are compared at a time
ROPE_KEYS = {
    "type": "rope_type",
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
INERT = {"tensor_data_layout", "rope.scaling.finetuned"}
DIVISORS = "rope_freqs.weight"  # a divisor for each frequency: how llama.cpp stores the scaling of Llama 3
LLAMA3_CONTEXT = 8192  # over which it stretches, where the file does not say
FIX = "import the model from its Hugging Face folder, or leave this part out"


@dataclass(frozen=True)
class Description:
    """What a GGUF file says of its model, before its weights are looked at.

    `divisors` are the values of `rope_freqs.weight`; `tied`: there is no head, or it is the embedding once more.
    """

    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    divisors: NDArray[np.float32] | None
    tied: bool
    place: str

    @property
    def architecture(self) -> Architecture:
        """The architecture that it names."""
        return architecture_of(self.metadata, self.place)


def read_gguf(path: Path, *, tokenizer: bool = True) -> Transformer:
    """The model of a GGUF file in float32, with its tokenizer attached; `tokenizer=False` leaves that out."""
    return open_gguf(path, tokenizer=tokenizer).load()


def open_gguf(path: Path, *, tokenizer: bool = True) -> StoredModel:
    """The same without reading its weights: they are read when they are used."""
    file, place = GgufFile(path), str(path)
    description = _describe(file)
    family, config = read_config(huggingface_config(description), place)
    layout = gguf_layout(description.architecture, family.layout(config), config)
    tensors = GgufTensors(file, description.architecture.gain_offset)
    problems = {
        "not understood": [name for name in tensors.entries if name not in layout],
        "missing": [name for name, at in layout.items() if name not in tensors.entries and not at.duplicate],
    }
    if any(problems.values()):
        listed = "; ".join(f"{word}: {', '.join(found)}" for word, found in problems.items() if found)
        raise ArtifactError(f"the tensors are not those of a {family.types[0]} model: {listed}", place=place, fix=FIX)
    parameters = to_parameters(tensors, layout, shapes(config), place)
    return StoredModel(config, parameters, tokenizer_files(file.metadata, place) if tokenizer else {}, place)


def _describe(file: GgufFile) -> Description:
    sizes = {name: info.shape for name, info in file.tensors.items()}
    divisors = file.read(DIVISORS) if DIVISORS in sizes else None
    tied = HEAD not in sizes
    if not tied and sizes.get(EMBEDDING) == sizes[HEAD]:
        tied = all(
            np.array_equal(file.read(HEAD, slice(row, row + ROWS)), file.read(EMBEDDING, slice(row, row + ROWS)))
            for row in range(0, sizes[HEAD][0], ROWS)
        )
    return Description(file.metadata, sizes, divisors, tied, str(file.path))


class GgufTensors(Tensors):
    """The tensors of a file in float32; `gain_offset` is taken from the gains of norms again."""

    def __init__(self, file: GgufFile, gain_offset: float) -> None:
        self.file, self.gain_offset = file, gain_offset
        self.entries = {
            name: Entry(info.shape, torch.float32) for name, info in file.tensors.items() if name != DIVISORS
        }

    def rows(self, name: str, start: int, end: int) -> Tensor:
        values = torch.from_numpy(self.file.read(name, slice(start, end)))
        return values - self.gain_offset if self.gain_offset and is_gain(name) else values


def is_gain(name: str) -> bool:
    """Whether the tensor is the gain of a norm."""
    return name.endswith("_norm.weight")


def huggingface_config(file: Description) -> dict[str, Any]:
    """The keys that the config.json of the same model has."""
    place, architecture = file.place, file.architecture
    prefix = f"{architecture.name}."
    given = {key.removeprefix(prefix): _plain(value) for key, value in file.metadata.items() if key.startswith(prefix)}
    names = {**KEYS, **architecture.keys}
    values = {theirs: given.pop(ours) for ours, theirs in names.items() if ours in given}
    rope = {theirs: given.pop(f"rope.scaling.{ours}", None) for ours, theirs in ROPE_KEYS.items()}
    _check_numbers(values, file, prefix)
    width = values.setdefault("head_dim", values["hidden_size"] // values["num_attention_heads"])
    rows = _check_shapes(values, file)
    if architecture.partial_rotation:
        values["partial_rotary_factor"] = given.pop("rope.dimension_count", width) / width
    if architecture.window_period is not None:
        window = given.pop(WINDOW, None) or None
        types = architecture.layer_types(values["num_hidden_layers"], window)
        values |= {"sliding_window": window, "layer_types": types}
    # These say again what is said elsewhere; another value would be another model.
    expected = {
        "vocab_size": rows,
        "rope.dimension_count": width,
        "attention.value_length": width,
        "expert_count": 0,
        "expert_used_count": 0,
        PATTERN: architecture.window_period,
    }
    problems = [key for key, value in given.items() if key not in INERT and value != expected.get(key, object())]
    if problems:
        listed = ", ".join(f"{prefix}{key} = {given[key]!r}" for key in sorted(problems))
        raise ArtifactError(f"keys that Ingot does not understand: {listed}", place=place, fix=FIX)
    values |= {
        "model_type": architecture.model_type,
        "vocab_size": rows,
        "tie_word_embeddings": file.tied if architecture.needs_head else HEAD not in file.shapes,
        **architecture.implied(values),
    }
    if "attn_output" in architecture.biased and "blk.0.attn_output.bias" in file.shapes:
        values["attention_bias"] = True
    if "ffn_up" in architecture.biased and "blk.0.ffn_up.bias" in file.shapes:
        values["mlp_bias"] = True
    if rope["rope_type"] not in (None, "none"):
        values["rope_scaling"] = {key: value for key, value in rope.items() if value is not None}
    if file.divisors is not None:
        context = rope["original_max_position_embeddings"] or LLAMA3_CONTEXT
        values["rope_scaling"] = _divided(file.divisors, values, context, place)
    return values


def _check_numbers(values: Mapping[str, Any], file: Description, prefix: str) -> None:
    """Refuse what no model has, before anything of that size is built."""
    most = {"num_hidden_layers": len(file.shapes), "rope_theta": 1e12}
    problems = [
        f"{prefix}{ours} = {values.get(theirs)!r}"
        for ours, theirs in KEYS.items()
        if theirs in values or theirs in NEEDED
        if type(values.get(theirs)) not in (int, float) or not 0 < values[theirs] <= most.get(theirs, LARGEST)
    ]
    if problems:
        raise ArtifactError(f"no model has {', '.join(problems)}", place=file.place, fix="convert the model again")


def _check_shapes(values: Mapping[str, Any], file: Description) -> int:
    """Refuse widths that are not those of the first tensors; the number of rows of the embedding."""
    width, heads, head = values["hidden_size"], values["num_attention_heads"], values["head_dim"]
    name, rows = "blk.0.attn_q.weight", heads * head
    if "self_attn.qkv_proj" in file.architecture.tensors:
        name, rows = "blk.0.attn_qkv.weight", rows + 2 * values.get("num_key_value_heads", heads) * head
    embedding, query = file.shapes.get(EMBEDDING), file.shapes.get(name)
    if embedding is None or query is None:
        raise ArtifactError(f"no {EMBEDDING} or no {name}", place=file.place, fix="convert the model again")
    if embedding[1:] != (width,) or query != (rows, width):
        raise ArtifactError(
            f"an embedding of {embedding} and queries of {query} in a model of width {width} with {heads} heads of {head}",
            place=file.place,
            fix="convert the model again",
        )
    return embedding[0]


def _plain(value: Any) -> Any:
    """A number as it was meant: 1e-5 is stored as the float32 next to it; a list of equal numbers is that number."""
    if isinstance(value, list) and value and all(one == value[0] for one in value):
        return _plain(value[0])
    return float(str(np.float32(value))) if isinstance(value, float) else value


def llama3_divisors(scaling: Llama3Scaling, base: float, width: int) -> NDArray[np.float32]:
    """What `rope_freqs.weight` holds for the scaling of Llama 3: by how much each frequency of a head is divided."""
    cpu = torch.device("cpu")
    plain, _ = frequencies(RopeConfig(base=base), width, cpu)
    scaled, _ = frequencies(RopeConfig(base=base, scaling=scaling), width, cpu)
    return (plain / scaled).numpy()


def _divided(divisors: NDArray[np.float32], values: Mapping[str, Any], context: int, place: str) -> dict[str, Any]:
    """The scaling that divides each frequency so: of Llama 3 if it is one, with the constants that Meta uses."""
    factor = float(f"{divisors.max():.6g}")  # without the rounding of float32
    scaling = Llama3Scaling(factor=factor, original_context=context)
    expected = llama3_divisors(scaling, values.get("rope_theta", 10_000.0), values["head_dim"])
    if divisors.shape != expected.shape or not np.allclose(expected, divisors, rtol=1e-4):
        raise ArtifactError(
            f"{DIVISORS} is not the scaling of Llama 3 over {context} positions by {scaling.factor:g}",
            place=place,
            fix=FIX,
        )
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low,
        "high_freq_factor": scaling.high,
        "original_max_position_embeddings": scaling.original_context,
    }
