"""Weights to and from the plain Hugging Face layout: config.json, model.safetensors, tokenizer.json.

huggingface_config.py translates the configuration. One table here (`layout`) says for each Hugging Face tensor which
rows of which parameter it is, because [queries | keys | values] and [gate | up] are one matrix in Ingot; both directions
read it, so a round trip returns the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ingot.model.config import ModelConfig
from ingot.model.huggingface_config import huggingface_config, ingot_config
from ingot.model.transformer import Transformer
from ingot.tokens.chat import default_chat_template
from ingot.tokens.tokenizer import NAMED_SPECIAL_TOKENS, PAD, TEMPLATE_FILE, TOKENIZER_FILE, TURN_END, Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, read_json, write_json, write_text

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"
HEAD = "lm_head.weight"
COMPUTED = ".rotary_emb.inv_freq"  # buffers that old exports stored although they follow from the configuration
LISTED = 10  # names in an error message


class Place(NamedTuple):
    """Where a Hugging Face tensor lies: these rows of this parameter."""

    parameter: str
    rows: slice


def layout(config: ModelConfig) -> dict[str, Place]:
    """The place of every Hugging Face tensor of the model."""
    every = slice(None)
    places = {
        "model.embed_tokens.weight": Place("embedding.weight", every),
        "model.norm.weight": Place("norm.gain", every),
    }
    if not config.tied_embeddings:
        places[HEAD] = Place("output.weight", every)
    for layer in range(config.depth):
        attention, inner = config.block(layer).attention, config.block(layer).feed_forward.width
        query, key = attention.heads * attention.head_width, attention.key_value_heads * attention.head_width
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        for part in ("weight", "bias") if attention.query_key_value_bias else ("weight",):
            fused = f"{ours}attention.query_key_value.{part}"
            places[f"{theirs}self_attn.q_proj.{part}"] = Place(fused, slice(0, query))
            places[f"{theirs}self_attn.k_proj.{part}"] = Place(fused, slice(query, query + key))
            places[f"{theirs}self_attn.v_proj.{part}"] = Place(fused, slice(query + key, query + 2 * key))
        places[f"{theirs}mlp.gate_proj.weight"] = Place(f"{ours}feed_forward.gate_up.weight", slice(0, inner))
        places[f"{theirs}mlp.up_proj.weight"] = Place(f"{ours}feed_forward.gate_up.weight", slice(inner, 2 * inner))
        whole = {
            "self_attn.o_proj": "attention.output.weight",
            "mlp.down_proj": "feed_forward.down.weight",
            "input_layernorm": "attention_norm.gain",
            "post_attention_layernorm": "feed_forward_norm.gain",
        }
        if attention.query_key_norm:
            whole |= {"self_attn.q_norm": "attention.query_norm.gain", "self_attn.k_norm": "attention.key_norm.gain"}
        places |= {f"{theirs}{name}.weight": Place(ours + parameter, every) for name, parameter in whole.items()}
    return places


def export_huggingface(model: Transformer, folder: Path) -> None:
    """Write the model as a folder that `transformers` loads, replacing an older one; weights keep their dtype."""
    config = huggingface_config(model.config)
    tokenizer, dtype = model.tokenizer, str(model.embedding.weight.dtype).removeprefix("torch.")
    tokens: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if tokenizer is not None:
        ends = [tokenizer.special[TURN_END], tokenizer.end_of_text]
        tokens |= {"eos_token_id": ends, "pad_token_id": tokenizer.pad}
    parameters = dict(model.named_parameters())
    tensors = {
        name: parameters[place.parameter].detach()[place.rows].cpu().contiguous()
        for name, place in layout(model.config).items()
    }
    with atomic_folder(folder) as temporary:
        write_json(temporary / CONFIG, {**config, "dtype": dtype, **tokens})
        write_json(temporary / GENERATION_CONFIG, tokens)
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        if tokenizer is not None:
            write_text(temporary / TOKENIZER_FILE, tokenizer.backend.to_str(pretty=True) + "\n")
            write_json(temporary / TOKENIZER_CONFIG, _tokenizer_config(tokenizer, model.config.context))


def import_huggingface(folder: Path) -> Transformer:
    """The model of a Hugging Face folder in float32; its tokenizer is attached if it has Ingot's special tokens."""
    source = _read_object(folder / CONFIG)
    files = _tensor_files(folder)
    model = Transformer(ingot_config(source, tied=HEAD not in files, place=str(folder / CONFIG)))
    places, parameters = layout(model.config), dict(model.named_parameters())
    tied_head = {HEAD} if model.config.tied_embeddings else set[str]()
    unknown = [name for name in files if name not in places and name not in tied_head and not name.endswith(COMPUTED)]
    missing = [name for name in places if name not in files]
    if unknown or missing:
        problems = [
            f"{word} {_listed(names)}" for word, names in (("unmapped", unknown), ("missing", missing)) if names
        ]
        raise ArtifactError(
            f"the tensors are not those of a {source['model_type']} model that Ingot can build: {'; '.join(problems)}",
            place=str(folder),
            fix="import a model without these parts (an output or feed-forward bias, adapters, quantised weights)",
        )
    for file in sorted(set(files.values())):
        with _open(file) as tensors, torch.no_grad():
            for name in (name for name, home in files.items() if home == file):
                if name in places:
                    _fill(parameters[places[name].parameter][places[name].rows], tensors.get_tensor(name), name, file)
    if tied_head & files.keys():
        with _open(files[HEAD]) as tensors:
            if not torch.equal(tensors.get_tensor(HEAD).float(), model.embedding.weight):
                raise ArtifactError(
                    f"config.json ties the head to the embedding, but {HEAD} is another matrix",
                    place=str(files[HEAD]),
                    fix='set "tie_word_embeddings": false in config.json',
                )
    model.tokenizer = _read_tokenizer(folder)
    return model


def is_huggingface(folder: Path) -> bool:
    """Whether the folder holds safetensors weights in this layout."""
    return (folder / CONFIG).exists() and ((folder / WEIGHTS).exists() or (folder / INDEX).exists())


def _tokenizer_config(tokenizer: Tokenizer, context: int) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": PAD,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": tokenizer.chat_template,
    }


def _read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer if it has Ingot's special tokens, with its chat template or else Ingot's."""
    from tokenizers import Tokenizer as Backend

    path = folder / TOKENIZER_FILE
    added = _read_object(path).get("added_tokens", []) if path.exists() else []
    if not {token["content"] for token in added if token["special"]}.issuperset(NAMED_SPECIAL_TOKENS):
        return None
    options = _read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    template = options.get("chat_template") or default_chat_template()
    if (folder / TEMPLATE_FILE).exists():
        template = (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    return Tokenizer(Backend.from_file(str(path)), template)


def _tensor_files(folder: Path) -> dict[str, Path]:
    """The file of every tensor: of those that the index of a sharded model names, or of the one file."""
    names = [WEIGHTS]
    if (folder / INDEX).exists():
        shards = _read_object(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict):
            raise ArtifactError("no weight_map", place=str(folder / INDEX), fix="copy the model's folder again")
        names = sorted(set(shards.values()))
    files: dict[str, Path] = {}
    for name in names:
        with _open(folder / name) as tensors:
            files |= dict.fromkeys(tensors.keys(), folder / name)
    return files


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (FileNotFoundError, SafetensorError) as error:
        problem = "a weight file is missing" if isinstance(error, FileNotFoundError) else f"not readable: {error}"
        raise ArtifactError(problem, place=str(file), fix="copy the model's folder again") from error


def _fill(target: Tensor, tensor: Tensor, name: str, file: Path) -> None:
    if target.shape != tensor.shape:
        raise ArtifactError(
            f"{name} is {list(tensor.shape)}, config.json asks for {list(target.shape)}",
            place=str(file),
            fix="config.json and the weights must come from the same model",
        )
    target.copy_(tensor)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"not readable: {error}", place=str(path), fix="copy the model's folder again") from error
    if not isinstance(value, dict):
        raise ArtifactError("not a JSON object", place=str(path), fix="copy the model's folder again")
    return value


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
