"""Writes a model as a GGUF file, which llama.cpp and what is built on it (Ollama, LM Studio) run.

The keys and tensors are those of the same model as a Hugging Face folder in llama.cpp's words (architectures.py, layout.py).
Matrices are stored as `type`; gains, biases and routers in float32, as llama.cpp itself stores them; a matrix whose rows are
no multiple of 32 values, and for `q4_0` the embedding and the head, in a wider format.

Invariant: what is written describes the model exactly. Its description is read back before the first byte is written, and if
one field of the architecture differs (a window that llama.cpp does not compute, a router that it normalises), the error
names it. Memory stays near that of one tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ingot.checkpoints.families.keys import Values
from ingot.checkpoints.families.table import architecture as architecture_fields
from ingot.checkpoints.families.table import differences, read_config, write_config
from ingot.checkpoints.gguf.architectures import KEYS, WINDOW, Architecture, architecture_for
from ingot.checkpoints.gguf.container import Planned, write_container
from ingot.checkpoints.gguf.layout import EMBEDDING, HEAD, gguf_layout
from ingot.checkpoints.gguf.quantise import KINDS, Bytes, quantise
from ingot.checkpoints.gguf.quants import BLOCKS
from ingot.checkpoints.gguf.read import DIVISORS, ROPE_KEYS, Description, huggingface_config, is_gain, llama3_divisors
from ingot.checkpoints.gguf.tokenizer import NO_VOCABULARY
from ingot.checkpoints.gguf.vocabulary import vocabulary
from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.translate import to_tensors
from ingot.model.config import ModelConfig
from ingot.model.positions.scaling import Llama3Scaling
from ingot.workspace.errors import ArtifactError

TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2}
"""What matrices may be stored as, and llama.cpp's number of such a file."""
OF_DTYPE = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
LLAMA3, SCALINGS = "llama3", ("llama3", "linear", "yarn")
ROUTER = "ffn_gate_inp"
QUANTISATION_VERSION = 2
SHOWN = 4  # differences in an error message


class GgufPlan:
    """Everything about a file that is known before it is written: errors come first."""

    def __init__(self, stored: StoredModel, type: str | None = None, name: str | None = None) -> None:
        config = stored.config
        if config.heads:
            raise ArtifactError(
                f"a model with the heads {', '.join(config.heads)}: a GGUF file holds language models here",
                place=stored.place,
                fix="`ingot export` a folder instead",
            )
        family, values = write_config(config)
        self.architecture = architecture_for(family.types[0])
        layout = gguf_layout(self.architecture, family.layout(config), config)
        self.source = to_tensors(stored.parameters, layout, shapes(config), stored.place)
        self.type = type or self._type_of_weights()
        if self.type not in TYPES:
            raise ArtifactError(
                f"no type {self.type!r}: matrices are stored as {', '.join(TYPES)}", fix="name one of these"
            )
        sizes = {name: entry.shape for name, entry in self.source.entries.items()}
        self.tensors = {name: Planned(shape, self._kind(name, shape)) for name, shape in sizes.items()}
        self.divisors = _divisors(values)
        if self.divisors is not None:
            self.tensors = {DIVISORS: Planned(self.divisors.shape, KINDS["F32"]), **self.tensors}
        self.metadata = {
            "general.architecture": self.architecture.name,
            "general.type": "model",
            **({} if name is None else {"general.name": name}),
            "general.file_type": TYPES[self.type],
            "general.quantization_version": QUANTISATION_VERSION,
            **{f"{self.architecture.name}.{key}": value for key, value in _keys(self.architecture, values).items()},
        }
        self._check(config, sizes, stored.place)
        self.notes = self._fallbacks()
        tokenizer = stored.tokenizer()
        if tokenizer is None:
            self.metadata |= {"tokenizer.ggml.model": NO_VOCABULARY}
            self.notes += ("no tokenizer: a program can give this model token ids only",)
        else:
            found = vocabulary(tokenizer, sizes[EMBEDDING][0], stored.place)
            self.metadata |= found.metadata
            self.notes += found.notes

    @property
    def bytes(self) -> int:
        """The size of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors.values())

    def write(self, path: Path, wrote: Callable[[int], None]) -> None:
        """Write the file."""
        for size in write_container(
            path, self.metadata, self.tensors, ((one, self._chunks(one)) for one in self.tensors)
        ):
            wrote(size)

    def _chunks(self, name: str) -> Iterator[Bytes]:
        kind = self.tensors[name].kind
        if name == DIVISORS and self.divisors is not None:
            yield quantise(torch.from_numpy(self.divisors)[None], kind)
            return
        shift = self.architecture.gain_offset if is_gain(name) else 0.0
        for _, _, values in self.source.chunks(name):
            rows = values.reshape(1, -1) if values.dim() < 2 else values.reshape(-1, values.shape[-1])
            yield quantise(rows.float() + shift if shift else rows, kind)

    def _type_of_weights(self) -> str:
        """The type that most of the weights have."""
        sizes: Counter[torch.dtype] = Counter()
        for entry in self.source.entries.values():
            sizes[entry.dtype] += entry.bytes
        return OF_DTYPE.get(sizes.most_common(1)[0][0], "f32")

    def _kind(self, name: str, shape: tuple[int, ...]) -> int:
        """How a tensor is stored."""
        if len(shape) == 1 or f".{ROUTER}" in name:
            return KINDS["F32"]
        wanted = "q8_0" if self.type == "q4_0" and name in (EMBEDDING, HEAD) else self.type
        kind = KINDS[wanted.upper()]
        return kind if shape[-1] % BLOCKS[kind].values == 0 else KINDS["F16"]

    def _fallbacks(self) -> tuple[str, ...]:
        """A note about matrices that cannot be cut into blocks."""
        wide = [
            name
            for name, tensor in self.tensors.items()
            if self.type in ("q8_0", "q4_0") and tensor.kind == KINDS["F16"]
        ]
        return (f"{len(wide)} matrices such as {wide[0]} are in f16: their rows are no multiple of 32",) if wide else ()

    def _check(self, config: ModelConfig, sizes: Mapping[str, tuple[int, ...]], place: str) -> None:
        """Raise an error if the file would describe another model."""
        written = {key: _as_stored(value) for key, value in self.metadata.items()}
        description = Description(written, sizes, self.divisors, config.tied_embeddings, place)
        _, back = read_config(huggingface_config(description), place)
        ours, theirs = (_as_stored(architecture_fields(one)) for one in (config, back))
        found = list(differences(ours, theirs))
        if found:
            raise ArtifactError(
                f"llama.cpp's {self.architecture.name} cannot compute this model: {'; '.join(found[:SHOWN])}",
                place=place,
                fix="`ingot export` a folder instead, or change the parts that are named",
            )


def _keys(architecture: Architecture, values: Values) -> dict[str, Any]:
    """The keys of the architecture, from those of config.json."""
    names = {**KEYS, **architecture.keys}
    found = {ours: values[theirs] for ours, theirs in names.items() if values.get(theirs) is not None}
    width = values["head_dim"]
    found |= {"vocab_size": values["vocab_size"], "attention.value_length": width}
    found["rope.dimension_count"] = round(width * (values.get("partial_rotary_factor") or 1.0))
    if architecture.window_period is not None and "sliding_attention" in values["layer_types"]:
        found[WINDOW] = values["sliding_window"]
    scaling = values.get("rope_scaling") or {}
    if scaling and scaling["rope_type"] not in SCALINGS:
        raise ArtifactError(
            f"the position scaling {scaling['rope_type']} has not been compared with llama.cpp's",
            fix="`ingot export` a folder; llama.cpp's convert_hf_to_gguf.py makes a GGUF file of it",
        )
    for ours in ("type", "factor", "original_context_length"):  # the others are keys that llama.cpp does not look at
        if scaling.get(ROPE_KEYS[ours]) is not None:
            found[f"rope.scaling.{ours}"] = scaling[ROPE_KEYS[ours]]
    if scaling.get("rope_type") == LLAMA3:
        del found["rope.scaling.type"], found["rope.scaling.factor"]  # the tensor of divisors says it
    return found


def _divisors(values: Values) -> Any:
    """The divisors of the frequencies, of a model with the scaling of Llama 3."""
    scaling = values.get("rope_scaling") or {}
    if scaling.get("rope_type") != LLAMA3:
        return None
    stretched = Llama3Scaling(
        factor=scaling["factor"],
        low=scaling["low_freq_factor"],
        high=scaling["high_freq_factor"],
        original_context=scaling["original_max_position_embeddings"],
    )
    return llama3_divisors(stretched, values["rope_theta"], values["head_dim"])


def _as_stored(value: Any) -> Any:
    """Decimal numbers as float32 holds them, so that its rounding is no difference."""
    if isinstance(value, Mapping):
        return {key: _as_stored(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_stored(inner) for inner in value]
    return float(np.float32(value)) if isinstance(value, float) else value
