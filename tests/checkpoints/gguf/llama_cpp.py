"""llama.cpp itself, as the PyPI package `cyllama` ships it (a wheel without dependencies): what it computes of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

llama: Any = pytest.importorskip("cyllama.llama.llama_cpp", reason="needs cyllama (pip install cyllama)")
llama.disable_logging()
FLOAT32 = 0  # of ggml's types


class Model(llama.LlamaModel):  # type: ignore[misc]  # without types
    """A model of llama.cpp, with the number that the package's reading of logits looks for."""

    @property
    def n_vocab(self) -> int:
        """The rows of the head."""
        return int(self.get_vocab().n_vocab)


def open_file(path: Path) -> Model:
    """The model of a file."""
    return Model(str(path), llama.LlamaModelParams())


def logits(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    """The logits after every token, with a cache of float32 (llama.cpp's own default is float16)."""
    options = llama.LlamaContextParams()
    options.n_ctx = options.n_batch = options.n_ubatch = 256
    options.n_threads = options.n_threads_batch = 1
    options.type_k = options.type_v = FLOAT32
    options.flash_attn_type = 0
    context = llama.LlamaContext(open_file(path), options)
    batch = llama.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
    for position, token in enumerate(tokens):
        batch.add(token, position, [0], True)
    context.decode(batch)
    return np.array([context.get_logits_ith(index) for index in range(len(tokens))], np.float32)


def encode(vocabulary: Any, text: str) -> list[int]:
    """The ids of a text in which nothing is special."""
    return list(vocabulary.tokenize(text, False, False)) if text else []


def quantise(source: Path, target: Path, number: int) -> None:
    """llama.cpp's own conversion of a file, every matrix alike; `number` is that of the kind of file."""
    options = llama.LlamaModelQuantizeParams()
    options.ftype, options.pure, options.nthread = number, True, 1
    llama.model_quantize(str(source), str(target), options)
