"""Copying between Hugging Face tensors and our parameters, by the entries of a layout. Both directions are exact."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ingot.checkpoints.families.family import Family, Layout, TensorMap
from ingot.workspace.errors import ArtifactError

LISTED = 10  # names in an error message


def tensor_shape(at: TensorMap, state: Mapping[str, Tensor]) -> tuple[int, ...]:
    """The shape of the Hugging Face tensor that `at` describes."""
    if at.shape is not None:
        return at.shape
    pair = at.pairs[0]
    return tuple(pair.ours(state[pair.parameter]).shape)


def loading_order(names: Iterable[str], layout: Layout) -> list[str]:
    """The names that the layout knows, duplicates last: they are compared with what was loaded before."""
    return sorted((name for name in names if name in layout), key=lambda name: layout[name].duplicate)


def load_tensor(name: str, tensor: Tensor, at: TensorMap, state: Mapping[str, Tensor], file: str) -> None:
    """Copy a Hugging Face tensor into the parameters of `state` that it belongs to; duplicates come last, to be compared."""
    if at.computed is not None:
        return
    expected = tensor_shape(at, state)
    if tuple(tensor.shape) != expected:
        raise ArtifactError(
            f"{name} is {list(tensor.shape)}, config.json asks for {list(expected)}",
            place=file,
            fix="config.json and the weights must come from the same model",
        )
    with torch.no_grad():
        for pair in at.pairs:
            ours, theirs = pair.ours(state[pair.parameter]), pair.theirs(tensor)
            if not at.duplicate:
                ours.copy_(theirs)
            elif not torch.equal(ours, theirs.to(ours)):
                raise ArtifactError(
                    f"{name} should be a copy of another tensor, and it is not",
                    place=file,
                    fix="Ingot keeps one of the two",
                )


def make_tensor(at: TensorMap, state: Mapping[str, Tensor]) -> Tensor:
    """The Hugging Face tensor that `at` describes, in the dtype of the parameter."""
    if at.computed is not None:
        return at.computed()
    first = state[at.pairs[0].parameter]
    tensor = torch.empty(tensor_shape(at, state), dtype=first.dtype, device="cpu")
    for pair in at.pairs:
        pair.theirs(tensor).copy_(pair.ours(state[pair.parameter].detach()))
    return tensor


def check_names(names: Collection[str], layout: Layout, family: Family, place: str) -> None:
    """Raise an error that lists the tensors which the layout does not know, and those that are missing."""
    ignored = re.compile("|".join((*family.ignored, *family.left_out)) or r"(?!)")
    unknown = [name for name in names if name not in layout and not ignored.fullmatch(name)]
    missing = [name for name, known in layout.items() if name not in names and known.pairs and not known.duplicate]
    problems = [
        f"{word}: {_listed(found)}" for word, found in (("not understood", unknown), ("missing", missing)) if found
    ]
    if problems:
        raise ArtifactError(
            f"the tensors are not those of a {family.types[0]} model as config.json describes it; {'; '.join(problems)}",
            place=place,
            fix="nothing is left out silently: import a model without the tensors that are not understood",
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
