"""Lists the runs that prove the layouts: every kind of parallelism with every method of training, and with every other kind.

    data, tensor, context, pipeline, expert      each alone, each with each other, with eight processes three at a time
    copies, ring, interleaved                    what an axis of the mesh can also do, alone
    × float8, LoRA, compile …                    every one of these with every method

The list is the product, so that no pair can be forgotten; a pair that cannot work is refused when its recipe is read
(`refusal`), and then that is its proof. Models are tiny. A case says on how many processes it runs, and how near to one process
its numbers must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from ingot.model.config import ModelConfig
from ingot.train.config import TrainingConfig
from ingot.train.parallel.divisible import find_unsupported
from ingot.workspace.errors import RecipeError

LENGTH, ROWS, VOCABULARY = 32, 8, 96
PARALLELISMS: Mapping[str, Mapping[str, Any]] = {
    "data": {"shard": 2},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "pipeline": {"pipeline": 2},
    "expert": {"shard": 2, "expert": 2},
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "copies": {"replicate": 2, "shard": 1},
    "ring": {"context": 2, "context_method": "ring"},
    "interleaved": {"pipeline": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2},
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "bfloat16": {"precision": "bfloat16"},
    "float8": {"precision": "float8"},
    "LoRA": {"lora": {"rank": 4, "alpha": 8}},
    "QLoRA": {"lora": {"rank": 4, "alpha": 8, "base": "nf4"}},
    "compile": {"compile": "blocks"},
    "recomputation": {"activations": {"keep": "blocks"}},
    "kept products": {"activations": {"keep": "products"}},
    "multi-token prediction": {},
    "tied embeddings": {},
    "sparse attention": {},
    "recurrent mixers": {},
    "noise scale": {"measure_noise": True},
}
"""What a stage's recipe says for each; some are of the model instead (`make_model`)."""

ATTENTION: Mapping[str, Any] = {"heads": 4, "key_value_heads": 2, "head_width": 8, "query_key_norm": "head"}
CHOSEN_KEYS: Mapping[str, Any] = {
    "kind": "mla",
    "heads": 4,
    "query_latent": 24,
    "key_value_latent": 16,
    "content_width": 8,
    "rope_width": 8,
    "value_width": 8,
    # enough heads that no two keys are tied, and a loss whose gradients show
    "sparse": {"heads": 16, "head_width": 8, "keep": 4, "loss": 30.0},
}
RECURRENT: Mapping[str, Mapping[str, Any]] = {
    "delta": {"kind": "gated_delta", "key_heads": 2, "value_heads": 4, "key_width": 8, "value_width": 8},
    "kda": {"kind": "kda", "heads": 4, "head_width": 8},
    "mamba": {"kind": "mamba2", "heads": 4, "head_width": 8, "state": 8},
    "lightning": {"kind": "lightning", "heads": 4, "head_width": 8},
}
DENSE: Mapping[str, Any] = {"width": 64}
EXPERTS: Mapping[str, Any] = {
    "kind": "moe",
    "experts": 8,
    "active": 2,
    "expert": {"width": 16},
    "shared": {"width": 32},
    "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True, "float32": True},
    "balancers": [{"kind": "loss", "scope": "sequence", "coefficient": 0.01}, {"kind": "bias"}],
}


@dataclass(frozen=True)
class Bounds:
    """How far a layout's numbers may be from those of one process, relative to each tensor's norm or number."""

    values: float  # losses, gradient norm, losses by source, loads of routers
    gradients: float
    weights: float  # after the last step


EXACT = Bounds(1e-6, 3e-5, 1e-5)
"""float32 sums in another order: 1e-7 a number, and up to a hundred times that in the gradients of gains after an update."""
CUDA = Bounds(1e-5, 2e-3, 1e-4)
"""The same on a GPU, where kernels multiply float32 with ten bits of mantissa, and sum with atomic additions."""
SPARSE = Bounds(1e-6, 1e-4, 2e-5)
"""The indexer learns from differences of probabilities that are nearly the same, thirty times as large here."""
BFLOAT16 = Bounds(2e-2, 2e-1, 4e-2)
"""Weights are gathered in bfloat16, which one process rounds them to as well, but partial sums are rounded to 8 bits: 1e-1 in the
gradients of gains, as far as bfloat16 is from float32 in one process."""
FLOAT8_CUDA = Bounds(1e-2, 6e-1, 2e-1)
"""A value whose last bit of float32 differs may round to another neighbour in float8, 6 to 12 % off, and all that follows
with it. On a CPU float8 is multiplied in float64, where that does not happen."""


@dataclass(frozen=True)
class Case:
    """A tiny model, what a recipe says about its training, and the processes that share it."""

    name: str
    kinds: tuple[str, ...]  # of parallelism
    method: str | None
    model: Mapping[str, Any]
    training: Mapping[str, Any]  # without the mesh
    mesh: Mapping[str, Any]

    @property
    def processes(self) -> int:
        """How many share the model."""
        sizes = {"shard": 1, **self.mesh}
        product = 1
        for axis in ("replicate", "shard", "tensor", "context", "pipeline"):
            product *= int(sizes.get(axis, 1))
        return product

    @property
    def alone(self) -> Case:
        """The same in one process."""
        return replace(self, mesh={})

    def bounds(self, device: str) -> Bounds:
        """How near to one process it must be."""
        if self.method == "bfloat16":
            return BFLOAT16
        if device == "cuda":
            return FLOAT8_CUDA if self.method == "float8" else CUDA
        return SPARSE if self.method == "sparse attention" else EXACT


def list_cases(processes: int = 4) -> list[Case]:
    """All runs for at most so many processes."""
    alone = [(kind,) for kind in (*PARALLELISMS, *VARIANTS)]
    together = [kinds for count in (2, 3) for kinds in combinations(PARALLELISMS, count)]
    cases = [make_case(kinds, None) for kinds in (*alone, *together)]
    cases += [make_case(kinds, method) for method in METHODS for kinds in alone]
    return [case for case in cases if case.processes <= processes]


def make_case(kinds: tuple[str, ...], method: str | None) -> Case:
    """The run of these kinds of parallelism with a method."""
    training = {"precision": "float32", **METHODS.get(method or "", {})}
    model = make_model(method, experts="expert" in kinds, layers=4 if "interleaved" in kinds else 2)
    return Case(" × ".join([*kinds, *([method] if method else [])]), kinds, method, model, training, make_mesh(kinds))


def make_mesh(kinds: tuple[str, ...]) -> dict[str, Any]:
    """The mesh of these kinds: two ranks of each; experts are divided over half of the ranks of shard × context, or over all."""
    mesh: dict[str, Any] = {"shard": 1}
    for kind in kinds:
        mesh |= {**PARALLELISMS, **VARIANTS}[kind]
    if {"data", "expert"} <= set(kinds):
        mesh["shard"] = 4
    if {"context", "expert"} <= set(kinds):
        mesh["expert"] = 4
    return mesh


def make_model(method: str | None, *, experts: bool, layers: int) -> dict[str, Any]:
    """The configuration of the model that a method needs."""
    feed_forward = EXPERTS if experts else DENSE
    mixers: Mapping[str, Mapping[str, Any]] = {"layer": CHOSEN_KEYS if method == "sparse attention" else ATTENTION}
    if method == "recurrent mixers":
        mixers = RECURRENT
    parts: dict[str, Any] = {
        "vocabulary_size": VOCABULARY,
        "width": 32,
        "blocks": {name: {"mixer": mixer, "feed_forward": feed_forward} for name, mixer in mixers.items()},
        "layers": " ".join(mixers) if len(mixers) > 1 else f"layer*{layers}",
        "context": LENGTH,
        "tied_embeddings": method == "tied embeddings",
    }
    if method == "multi-token prediction":
        parts["multi_token"] = {"steps": 2, "block": "layer"}
    return parts


def read_case(case: Case, device: str = "cpu") -> tuple[ModelConfig, TrainingConfig]:
    """The configurations of a run, as a recipe's are read; a RecipeError says what cannot work."""
    # a larger ε than usual: it does not blow up the last bit of small gradients
    optimizer = {"lr": 0.01, "epsilon": 1e-4}
    usual = {"steps": 2, "sequence_length": LENGTH, "optimizer": optimizer, "compile": "off", "graphs": "off"}
    model = ModelConfig.model_validate(case.model)
    try:
        training = TrainingConfig.model_validate({**usual, **case.training, "mesh": case.mesh, "device": device})
    except ValidationError as error:
        raise RecipeError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None
    for broken in find_unsupported(model, training.mesh):
        raise RecipeError(broken.problem, place="mesh", fix=broken.fix)
    return model, training


def find_refusal(case: Case) -> str | None:
    """Why a recipe with this case is refused when it is read; None if it is not."""
    try:
        read_case(case)
    except RecipeError as error:
        return error.problem
    return None
