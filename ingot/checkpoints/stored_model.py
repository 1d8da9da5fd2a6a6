"""A model on disk: its configuration, its weights (read only when needed), and the files of its tokenizer."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ingot.checkpoints.tensors import CastTensors, MemoryTensors, Tensors, fill
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import TEMPLATE_FILE, TOKENIZER_FILE, Tokenizer


@dataclass(frozen=True)
class StoredModel:
    """`parameters` are those of `Transformer(config)`, by name; `files` are the tokenizer's, kept byte for byte.

    `place` is named in errors; `notes` are for the person who reads the model.
    """

    config: ModelConfig
    parameters: Tensors
    files: Mapping[str, bytes]
    place: str
    notes: tuple[str, ...] = ()

    def load(self, dtype: torch.dtype = torch.float32) -> Transformer:
        """The model in memory, its tokenizer attached if there is one."""
        for note in self.notes:
            warnings.warn(f"{self.place}: {note}", stacklevel=3)
        with torch.device("meta"):  # every value is filled in below
            model = Transformer(self.config)
        model = model.to(dtype).to_empty(device="cpu")
        fill(model.state_dict(), self.parameters)
        model.tokenizer = self.tokenizer()
        return model

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, if one came with the model in a form that can be read."""
        return Tokenizer.from_files(self.files, self.place) if TOKENIZER_FILE in self.files else None

    def cast(self, dtype: torch.dtype | None) -> StoredModel:
        """The same with parameters of another dtype. Buffers keep theirs: a balancing bias needs its precision."""
        if dtype is None:
            return self
        names = {name for name, tensor in shapes(self.config).items() if isinstance(tensor, nn.Parameter)}
        return dataclasses.replace(self, parameters=CastTensors(self.parameters, names, dtype))


def in_memory(model: Transformer) -> StoredModel:
    """A model in memory as if it were stored."""
    files = {} if model.tokenizer is None else tokenizer_files(model.tokenizer)
    return StoredModel(model.config, MemoryTensors(model.state_dict()), files, "the model in memory")


def shapes(config: ModelConfig) -> dict[str, Tensor]:
    """The parameters and buffers of a model, without memory."""
    with torch.device("meta"):
        state: dict[str, Tensor] = Transformer(config).state_dict(keep_vars=True)
    return state


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The files of a tokenizer: those that it was read from, or those that it would be saved as."""
    if tokenizer.files:
        return dict(tokenizer.files)
    files = {TOKENIZER_FILE: (tokenizer.backend.to_str(pretty=True) + "\n").encode()}
    if tokenizer.chat_template is not None:
        files[TEMPLATE_FILE] = tokenizer.chat_template.encode()
    return files
