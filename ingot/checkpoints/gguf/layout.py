"""Says which view of which parameter a tensor of a GGUF file is, from the layout of the same model as a Hugging Face folder.

Names are translated; the tensors of all experts of a layer become one, [E, …]; a tied head may be stored once more. For
architectures that rotate neighbouring channels the rows of query and key projections are interleaved:

    row of Hugging Face, within a head    i     i + w/2
    row of GGUF                          2i      2i + 1
"""

from __future__ import annotations

import re

from ingot.checkpoints.families.family import Layout, TensorMap, View, ViewPair
from ingot.checkpoints.gguf.architectures import OUTER, Architecture
from ingot.checkpoints.stored_model import shapes
from ingot.checkpoints.translate import tensor_shape
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.workspace.errors import ArtifactError, listed

LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(.+)")
HEAD, EMBEDDING = "output.weight", "token_embd.weight"


def gguf_layout(architecture: Architecture, theirs: Layout, config: ModelConfig) -> Layout:
    """Every tensor of the file by its name. `theirs` is the layout of the Hugging Face folder."""
    state = shapes(config)
    found: Layout = {}
    unknown: list[str] = []
    experts: dict[str, list[ViewPair]] = {}
    for stored, at in theirs.items():
        name, expert = gguf_name(architecture, stored)
        if name is None:
            unknown.append(stored)
        elif expert is not None:
            [pair] = at.pairs
            experts.setdefault(name, []).append(ViewPair(pair.parameter, pair.ours, _index(expert)))
        elif architecture.neighbours and (heads := _heads(name, config)):
            [pair] = at.pairs
            found[name] = TensorMap(_interleaved(pair, heads, tensor_shape(at, state)), tensor_shape(at, state))
        else:
            found[name] = at
    if unknown:
        raise ArtifactError(
            f"llama.cpp's {architecture.name} has no place for these tensors: {listed(unknown)}",
            fix="`ingot export` a folder instead, or train a model without these parts",
        )
    for name, pairs in experts.items():
        one = pairs[0].ours(state[pairs[0].parameter])
        found[name] = TensorMap(tuple(pairs), (len(pairs), *one.shape))
    if config.tied_embeddings and architecture.needs_head:
        found[HEAD] = TensorMap(found[EMBEDDING].pairs, found[EMBEDDING].shape, duplicate=True)
    return found


def gguf_name(architecture: Architecture, stored: str) -> tuple[str | None, int | None]:
    """The name in the file of a Hugging Face tensor, None if there is none, and the number of the expert that it is."""
    part, _, ending = stored.rpartition(".")
    inside = LAYER.fullmatch(part)
    if inside is None:
        return (f"{OUTER[part]}.{ending}" if part in OUTER and ending == "weight" else None), None
    number, part = inside[1], inside[2]
    expert = EXPERT.fullmatch(part)
    if expert is not None:
        part = f"{expert[1]}.{expert[3]}"
    ours = architecture.tensors.get(part)
    if ours is None or (ending == "bias" and ours not in architecture.biased):
        return None, None
    return f"blk.{number}.{ours}.{ending}", None if expert is None else int(expert[2])


def _heads(name: str, config: ModelConfig) -> int | None:
    """How many heads the rows of this tensor are, if it is a projection of queries or keys."""
    block, _, part = name.partition(".")[2].partition(".")
    kind = part.partition(".")[0]
    if kind not in ("attn_q", "attn_k"):
        return None
    mixer = config.block(int(block)).mixer
    assert isinstance(mixer, AttentionConfig)
    return mixer.heads if kind == "attn_q" else mixer.key_value_heads


def _interleaved(pair: ViewPair, heads: int, shape: tuple[int, ...]) -> tuple[ViewPair, ...]:
    """The two halves of every head: rows that follow each other in ours, every second row in theirs."""
    width = shape[0] // heads
    return tuple(
        ViewPair(
            pair.parameter,
            _rows(pair.ours, head * width + half * width // 2, head * width + (half + 1) * width // 2, 1),
            _rows(pair.theirs, head * width + half, (head + 1) * width, 2),
        )
        for head in range(heads)
        for half in (0, 1)
    )


def _rows(view: View, start: int, end: int, step: int) -> View:
    return lambda tensor: view(tensor)[start:end:step]


def _index(expert: int) -> View:
    return lambda tensor: tensor[expert]
