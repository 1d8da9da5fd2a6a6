"""Reads and writes adapters as PEFT does: `adapter_config.json` and `adapter_model.safetensors`.

    base_model.model.<path of the Hugging Face module>.lora_A.weight [r, inputs]    .lora_B.weight [outputs, r]
    base_model.model.<path of the embedding>.token_adapter.trainable_tokens_delta [tokens, width]    rows of new tokens
    base_model.model.score.weight [1, width]    the head of a reward model, in `modules_to_save`; a critic (PPO) has no form there

Which part of which of our weights a Hugging Face module is, its family's layout says (families/family.py). Despite its name the
`trainable_tokens_delta` are the new rows themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.adapter import Adapter, Update
from ingot.checkpoints.classification import LANGUAGE_HEAD, SCORE, language_model
from ingot.checkpoints.families.family import View
from ingot.checkpoints.families.table import write_config
from ingot.checkpoints.safetensors_file import SafetensorsFile, write_safetensors
from ingot.checkpoints.stored_model import shapes
from ingot.checkpoints.tensors import MemoryTensors
from ingot.model.config import ModelConfig
from ingot.model.lora import Span
from ingot.model.lora_config import LoraConfig
from ingot.model.transformer import REWARD_HEAD
from ingot.workspace.errors import ArtifactError, listed
from ingot.workspace.files import read_json, write_json

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
STEM = "base_model.model."
MATRIX = re.compile(re.escape(STEM) + r"(.+)\.lora_(A|B)\.weight")
ROWS = re.compile(re.escape(STEM) + r"(.+)\.token_adapter\.trainable_tokens_delta")
UNSUPPORTED = {"use_dora": "DoRA", "fan_in_fan_out": "transposed weights"}
"""Keys of adapter_config.json that change what the matrices mean, and what to call them."""
REWARD = f"heads.{REWARD_HEAD}.weight"
HEADS = ("score", "classifier")  # what PEFT saves whole of every sequence classifier, by their usual names


def modules_of(config: ModelConfig) -> dict[str, tuple[str, Span]]:
    """The linear modules of the model's Hugging Face form: module -> the weight of ours, and the rows of it, that it is.

    A module that is not a run of whole rows of one weight is left out. An ArtifactError where no family has the model.
    """
    config = language_model(config)
    family, _ = write_config(config)
    state = shapes(config)
    found: dict[str, tuple[str, Span]] = {}
    for name, tensor in family.layout(config).items():
        if not name.endswith(".weight") or len(tensor.pairs) != 1 or tensor.duplicate:
            continue
        pair = tensor.pairs[0]
        weight = state[pair.parameter]
        span = _rows(pair.ours, tuple(weight.shape)) if weight.dim() == 2 else None
        theirs = tensor.shape or (() if span is None else (span.end - span.start, weight.shape[1]))
        if span is not None and _rows(pair.theirs, theirs) == Span(0, span.end - span.start):
            found[name.removesuffix(".weight")] = (pair.parameter, span)
    return found


def _rows(view: View, shape: tuple[int, ...]) -> Span | None:
    """The rows that a view of a matrix is, if it is that."""
    found = view(torch.empty(shape, device="meta"))
    if found.dim() != 2 or found.shape[1] != shape[1] or found.stride() != (shape[1], 1):
        return None
    start = int(found.storage_offset()) // shape[1]
    return Span(start, start + found.shape[0])


def write_peft(folder: Path, adapter: Adapter, model: ModelConfig, lora: LoraConfig, base: str) -> None:
    """Write an adapter into an empty folder; `base` is what it names as its base model."""
    modules = modules_of(model)
    by_rows = {place: module for module, place in modules.items()}
    tensors: dict[str, Tensor] = {}
    for name, updates in adapter.updates.items():
        for each in updates:
            module = by_rows.get((name, Span(each.start, each.end)))
            if module is None:
                raise ArtifactError(
                    f"PEFT has no module for rows {each.start} to {each.end} of {name}",
                    place=str(folder),
                    fix="use the merged checkpoint",
                )
            tensors[f"{STEM}{module}.lora_A.weight"] = each.lora_A
            tensors[f"{STEM}{module}.lora_B.weight"] = each.lora_B
    tokens: dict[str, list[int]] = {}
    for name, (numbers, rows) in adapter.rows.items():
        module = next(module for module, (weight, _) in modules.items() if weight == name)
        if f"{module}.weight" == LANGUAGE_HEAD and REWARD in adapter.replaced:
            continue  # a sequence classifier has no such head
        tensors[f"{STEM}{module}.token_adapter.trainable_tokens_delta"] = rows
        tokens[module.rpartition(".")[2]] = list(numbers)
    classifier = {}
    if REWARD in adapter.replaced:
        tensors[STEM + SCORE] = adapter.replaced[REWARD]
        classifier = {"task_type": "SEQ_CLS", "modules_to_save": list(HEADS)}
    for _ in write_safetensors(folder / ADAPTER_WEIGHTS, list(tensors), MemoryTensors(tensors)):
        pass
    adapted = {match[1] for name in tensors if (match := MATRIX.fullmatch(name))}
    write_json(folder / ADAPTER_CONFIG, _config(lora, _targets(adapted, model), tokens, base) | classifier)


def _targets(adapted: set[str], model: ModelConfig) -> list[str]:
    """The modules by the ends of their names, or by whole names where others end so too (those of routed experts)."""
    model = language_model(model)
    family, _ = write_config(model)
    others = {name.removesuffix(".weight") for name in family.layout(model)} - adapted
    shared = {module.rpartition(".")[2] for module in others}
    return sorted({module if (end := module.rpartition(".")[2]) in shared else end for module in adapted})


def _config(lora: LoraConfig, targets: list[str], tokens: Mapping[str, list[int]], base: str) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.rank_stabilised,
        "target_modules": targets,
        "trainable_token_indices": dict(tokens) or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def read_peft(folder: Path, model: ModelConfig) -> Adapter:
    """The adapter in a folder, for a model of this configuration. What is not understood is an error."""
    place = folder / ADAPTER_CONFIG
    options = _options(place)
    modules = modules_of(model)
    file = SafetensorsFile(folder / ADAPTER_WEIGHTS)
    matrices: dict[str, dict[str, Tensor]] = {}
    rows: dict[str, tuple[tuple[int, ...], Tensor]] = {}
    replaced, unknown = dict[str, Tensor](), list[str]()
    for name, entry in file.entries.items():
        values = file.rows(name, 0, entry.rows)
        if (match := MATRIX.fullmatch(name)) and match[1] in modules:
            matrices.setdefault(match[1], {})[match[2]] = values
        elif (match := ROWS.fullmatch(name)) and match[1] in modules:
            weight, _ = modules[match[1]]
            rows[weight] = (_numbers(options["trainable_token_indices"], match[1], len(values), place), values)
        elif name == STEM + SCORE and len(values) == 1:
            replaced[REWARD] = values
        else:
            unknown.append(name)
    if unknown:
        raise ArtifactError(
            f"tensors of the adapter that this model has no place for: {listed(unknown, 3)}",
            place=str(file.path),
            fix="give the model that the adapter was trained on; linear layers, token rows and a score of one label are read",
        )
    updates: dict[str, list[Update]] = {}
    for module, pair in matrices.items():
        if pair.keys() != {"A", "B"}:
            raise ArtifactError(f"{module} has no lora_A or no lora_B", place=str(file.path))
        weight, span = modules[module]
        scale = _scale(options, module, len(pair["A"]))
        updates.setdefault(weight, []).append(Update(*span, pair["A"], pair["B"], scale))
    return Adapter({name: tuple(each) for name, each in updates.items()}, rows, replaced)


def _options(place: Path) -> dict[str, Any]:
    if not place.exists():
        raise ArtifactError(
            f"no adapter here: there is no {ADAPTER_CONFIG}",
            place=str(place.parent),
            fix="give PEFT's folder, or a stage that trained with `lora`",
        )
    try:
        options = dict(read_json(place))
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(
            f"not readable as the configuration of an adapter: {error}",
            place=str(place),
            fix="give a folder with adapter_config.json and adapter_model.safetensors",
        ) from error
    if options.get("peft_type") != "LORA":
        raise ArtifactError(f"an adapter of kind {options.get('peft_type')}", place=str(place), fix="only LORA is read")
    for key, words in UNSUPPORTED.items():
        if options.get(key):
            raise ArtifactError(
                f"the adapter uses {words} ({key})", place=str(place), fix="merge it with PEFT and import the result"
            )
    if others := sorted(set(options.get("modules_to_save") or ()) - set(HEADS)):
        raise ArtifactError(
            f"the adapter has whole modules (modules_to_save: {', '.join(others)})",
            place=str(place),
            fix="merge it with PEFT and import the result",
        )
    if options.get("bias", "none") != "none":
        raise ArtifactError("the adapter trained biases", place=str(place), fix="merge it with PEFT first")
    return {"alpha_pattern": {}, "trainable_token_indices": None, "lora_alpha": 8, **options}


def _scale(options: Mapping[str, Any], module: str, rank: int) -> float:
    """alpha / r, or alpha / √r; patterns name modules by their end, or by a regular expression for it."""
    patterns = options["alpha_pattern"] or {}
    found = (value for key, value in patterns.items() if re.fullmatch(rf"(.*\.)?({key})", module))
    alpha = float(next(found, options["lora_alpha"]))
    return alpha / (rank**0.5 if options.get("use_rslora") else rank)


def _numbers(indices: Any, module: str, count: int, place: Path) -> tuple[int, ...]:
    """The tokens of new rows: a list for the embedding, or lists by module."""
    found = indices.get(module.rpartition(".")[2]) if isinstance(indices, dict) else indices
    if not isinstance(found, list) or len(found) != count:
        raise ArtifactError(
            f"trainable_token_indices does not say which tokens the {count} rows of {module} are: "
            f"{json.dumps(indices):.60}",
            place=str(place),
        )
    return tuple(map(int, found))
