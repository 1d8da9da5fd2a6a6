"""Reads and writes Hugging Face folders: config.json, safetensors weights in one file or in shards, tokenizer files.

families/ translates configurations and says where each tensor belongs; translate.py moves the values. Old and new spellings
of config.json are read. Quantised weights are read as plain ones (dequantise.py). What is written is what transformers
writes: the same names, shards and index, so that it finds every key it expects and no other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.classification import (
    SCORE,
    as_classifier,
    classifier_layout,
    is_classifier,
    language_model,
    read_classifier,
    write_classifier,
)
from ingot.checkpoints.dequantise import dequantised
from ingot.checkpoints.families.family import Family, Layout, TensorMap, ViewPair
from ingot.checkpoints.families.table import find_family, read_config, write_config
from ingot.checkpoints.safetensors_file import SafetensorsFile, shard, write_safetensors
from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.tensors import Tensors
from ingot.checkpoints.translate import to_parameters, to_tensors
from ingot.model.transformer import REWARD_HEAD
from ingot.tokens.tokenizer import FILES, GENERATION_CONFIG, PAD, TOKENIZER_CONFIG, TURN_END, Tokenizer
from ingot.workspace.errors import ArtifactError, listed
from ingot.workspace.files import inside, read_json, write_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
OTHER_FILES = ("tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "chat_template.json")
"""Older forms of a tokenizer, which are copied without being read."""
HEAD = "lm_head.weight"
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def is_huggingface(folder: Path) -> bool:
    """Whether the folder holds safetensors weights in this layout."""
    return (folder / CONFIG).exists() and ((folder / WEIGHTS).exists() or (folder / INDEX).exists())


def open_huggingface(folder: Path, own: str | None = None) -> StoredModel:
    """The model of a folder. Every key of config.json and every tensor must be understood.

    `own` is a family of the user's own (`file.py:NAME`) to read it by.
    """
    values, place = _read_object(folder / CONFIG), str(folder / CONFIG)
    is_reward_model = is_classifier(values)
    if is_reward_model:
        values = read_classifier(values, place)
    family = find_family(own or values.get("model_type"), place)
    theirs: Tensors = FolderTensors(folder, family.canonical)
    quantisation = values.pop("quantization_config", None)
    if quantisation is not None:
        dtype = getattr(torch, str(values.get("dtype") or values.get("torch_dtype") or "bfloat16"))
        theirs = dequantised(theirs, quantisation, dtype, place)
    names = theirs.entries.keys()
    if values.get("tie_word_embeddings") is None and HEAD not in names:
        values["tie_word_embeddings"] = True  # the weights say so where the configuration does not
    family, config = read_config(values, place, [name for name in names if name != SCORE], own)
    if is_reward_model:
        config = config.model_copy(update={"heads": (REWARD_HEAD,)})
    layout = classifier_layout(family.layout(config), config)
    if HEAD in names and HEAD not in layout:  # some store a tied head all the same
        layout[HEAD] = TensorMap((ViewPair("embedding.weight"),), duplicate=True)
    check_names(names, layout, family, str(folder))
    parameters = to_parameters(theirs, layout, shapes(config), str(folder))
    notes = _left_out(names, family)
    return StoredModel(config, parameters, _tokenizer_files(folder, values), str(folder), notes)


class HuggingFacePlan:
    """Everything about a folder that is known before it is written: errors come first."""

    def __init__(self, stored: StoredModel, largest_shard: int) -> None:
        config = as_classifier(stored.config)
        family, self.values = write_config(language_model(config))
        if config.heads:
            self.values = write_classifier(self.values)
        layout = classifier_layout(family.layout(config), config)
        self.tensors = to_tensors(stored.parameters, layout, shapes(config), stored.place)
        self.shards = shard(self.tensors.entries, largest_shard)
        self.files = dict(stored.files)
        if not {TOKENIZER_CONFIG, GENERATION_CONFIG} <= self.files.keys():
            tokenizer = stored.tokenizer()
            if tokenizer is not None:
                self.files.setdefault(TOKENIZER_CONFIG, _json(_tokenizer_config(tokenizer, stored.config.context)))
            self.files.setdefault(GENERATION_CONFIG, _json(_generation_config(tokenizer)))
        try:
            ids = dict(json.loads(self.files[GENERATION_CONFIG]))
        except (ValueError, TypeError) as error:
            at = f"{stored.place}: {GENERATION_CONFIG}"
            raise ArtifactError(f"not a JSON object: {error}", place=at, fix="copy the model's folder again") from error
        self.values |= {name: ids.get(name) for name in TOKEN_IDS}

    def write(self, folder: Path, wrote: Callable[[int], None]) -> None:
        """Write the folder's files."""
        sizes: Counter[torch.dtype] = Counter()
        for entry in self.tensors.entries.values():
            sizes[entry.dtype] += entry.bytes
        dtype = str(sizes.most_common(1)[0][0]).removeprefix("torch.")
        # the older name too: programs on transformers 4 know no other, and would take float32
        write_json(folder / CONFIG, {**self.values, "dtype": dtype, "torch_dtype": dtype})
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        index: dict[str, str] = {}
        for number, names in enumerate(self.shards, 1):
            file = WEIGHTS
            if len(self.shards) > 1:
                file = f"model-{number:05d}-of-{len(self.shards):05d}.safetensors"
            index |= dict.fromkeys(names, file)
            for size in write_safetensors(folder / file, names, self.tensors):
                wrote(size)
        if len(self.shards) > 1:
            count = sum(entry.rows * entry.row for entry in self.tensors.entries.values())
            metadata = {"total_parameters": count, "total_size": self.tensors.bytes}
            write_json(folder / INDEX, {"metadata": metadata, "weight_map": dict(sorted(index.items()))})


class FolderTensors(Tensors):
    """The tensors of a folder, of the one file or of the shards that the index names, under the names of the layout."""

    def __init__(self, folder: Path, canonical: Callable[[str], str]) -> None:
        paths = [folder / WEIGHTS]
        if (folder / INDEX).exists():
            shards = _read_object(folder / INDEX).get("weight_map")
            if not isinstance(shards, dict) or not shards:
                raise ArtifactError("no weight_map", place=str(folder / INDEX), fix="copy the model's folder again")
            paths = sorted({inside(folder, name, folder / INDEX) for name in shards.values()})
        self.entries, self._locations = {}, dict[str, tuple[SafetensorsFile, str]]()
        for file in map(SafetensorsFile, paths):
            for name, entry in file.entries.items():
                known = canonical(name)
                if known in self.entries:
                    raise ArtifactError(
                        f"{known} comes twice", place=str(file.path), fix="copy the model's folder again"
                    )
                self.entries[known], self._locations[known] = entry, (file, name)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        file, stored = self._locations[name]
        return file.rows(stored, start, end)


def check_names(names: Collection[str], layout: Layout, family: Family, place: str) -> None:
    """Raise an error that lists the tensors which the layout does not know, and those that are missing."""
    ignored = re.compile("|".join((*family.ignored, *family.left_out)) or r"(?!)")
    unknown = [name for name in names if name not in layout and not ignored.fullmatch(name)]
    missing = [name for name, known in layout.items() if name not in names and known.pairs and not known.duplicate]
    problems = [
        f"{word}: {listed(found)}" for word, found in (("not understood", unknown), ("missing", missing)) if found
    ]
    if problems:
        raise ArtifactError(
            f"the tensors are not those of a {family.types[0]} model as config.json describes it; {'; '.join(problems)}",
            place=place,
            fix="nothing is left out silently: import a model without the tensors that are not understood",
        )


def _left_out(names: Collection[str], family: Family) -> tuple[str, ...]:
    """A note about tensors that belong to parts which Ingot does not have."""
    pattern = re.compile("|".join(family.left_out) or r"(?!)")
    found = [name for name in names if pattern.fullmatch(name)]
    return (f"left out: {len(found)} tensors that are not of the language model, such as {found[0]}",) if found else ()


def _tokenizer_files(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of the tokenizer and of generation; what config.json says of token ids stands in for a missing one."""
    files = {name: (folder / name).read_bytes() for name in (*FILES, *OTHER_FILES) if (folder / name).is_file()}
    ids = {name: config[name] for name in TOKEN_IDS if config.get(name) is not None}
    if GENERATION_CONFIG not in files and ids:
        files[GENERATION_CONFIG] = _json(ids)
    return files


def _tokenizer_config(tokenizer: Tokenizer, context: int) -> dict[str, Any]:
    names = {id: name for name, id in tokenizer.special.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END if TURN_END in tokenizer.special else names.get(tokenizer.end_of_text),
        "pad_token": PAD if PAD in tokenizer.special else names.get(tokenizer.pad),
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }


def _generation_config(tokenizer: Tokenizer | None) -> dict[str, Any]:
    if tokenizer is None:
        return dict.fromkeys(TOKEN_IDS)
    turn_end = [tokenizer.special[TURN_END]] if TURN_END in tokenizer.special else []
    ends = list(dict.fromkeys([*turn_end, *tokenizer.ends]))
    return {"bos_token_id": None, "eos_token_id": ends, "pad_token_id": tokenizer.pad}


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"not readable: {error}", place=str(path), fix="copy the model's folder again") from error
    if not isinstance(value, dict):
        raise ArtifactError("not a JSON object", place=str(path), fix="copy the model's folder again")
    return value
