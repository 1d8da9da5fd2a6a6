"""The table of all families, and reading and writing a config.json through it.

`export_as` in a model's configuration names the model type to write; without it, the first family of the table that can
express the model is taken. A family can express a model if its own `read` of what it wrote gives the same architecture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ingot.checkpoints.families import (
    afmoe,
    deepseek,
    falcon,
    gemma,
    glm,
    gpt_oss,
    kimi_linear,
    llama,
    llama4,
    minimax,
    minimax_m2,
    mistral,
    multimodal,
    nemotron,
    olmo,
    olmoe,
    phi,
    qwen3_next,
    qwen_moe,
)
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys
from ingot.model.config import ModelConfig
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import is_outside, load_outside

FAMILIES: tuple[Family, ...] = (
    llama.LLAMA,
    mistral.MISTRAL,
    llama.SMOLLM3,
    llama.QWEN2,
    llama.QWEN3,
    phi.PHI3,
    olmo.OLMO2,
    olmo.OLMO3,
    gemma.GEMMA2,
    gemma.GEMMA3,
    qwen_moe.QWEN2_MOE,
    qwen_moe.QWEN3_MOE,
    olmoe.OLMOE,
    mistral.MIXTRAL,
    glm.GLM4_MOE,
    afmoe.AFMOE,
    minimax_m2.MINIMAX_M2,
    gpt_oss.GPT_OSS,
    llama4.LLAMA4,
    deepseek.V2,
    deepseek.V3,
    deepseek.V32,
    deepseek.GLM_DSA,
    qwen3_next.QWEN3_NEXT,
    kimi_linear.KIMI_LINEAR,
    minimax.MINIMAX,
    nemotron.NEMOTRON_H,
    falcon.FALCON_H1,
    multimodal.KIMI_K25,
    multimodal.GEMMA3_MULTIMODAL,
    multimodal.LLAMA4_MULTIMODAL,
)

TRAINING_ONLY = frozenset({"backend", "initial", "balancers", "quantisation", "export_as", "weight", "stage", "loss"})
"""Fields that no Hugging Face configuration holds and no forward pass depends on."""
SHOWN = 4  # differences in an error message


def find_family(model_type: object, place: str) -> Family:
    """The family of a model type, or one of the user's own as `file.py:NAME`; an error that says what is near."""
    if isinstance(model_type, str) and is_outside(model_type):
        found = load_outside(model_type, place=place or None)
        if not isinstance(found, Family):
            fix = "give it three functions and a type: docs/guides/add-a-family.md"
            raise RecipeError(
                f"{model_type} is not a Family of ingot.checkpoints.families.family", place=place or None, fix=fix
            )
        return found
    for family in FAMILIES:
        if model_type in family.types:
            return family
    known = sorted(name for family in FAMILIES for name in family.types)
    fix = suggestion(str(model_type), known, "known are")
    raise ArtifactError(
        f"unknown model type {model_type!r}", place=place, fix=f"{fix}; or add it, as a file of your own (--family)"
    )


def read_config(
    values: Mapping[str, Any], place: str, tensors: Collection[str] | None = None, own: str | None = None
) -> tuple[Family, ModelConfig]:
    """The model that a config.json describes, every key of which must be understood.

    `tensors` are the names of the tensors that come with it, if they are known. `own` is a family of the user's own, as
    `file.py:NAME`, to read it by instead of by its model type; the model is exported by it, too.
    """
    family = find_family(own or values.get("model_type"), place)
    names = None if tensors is None else [family.canonical(name) for name in tensors]
    keys = Keys({**values, "model_type": family.types[0]}, place, names)  # other spellings of the type mean the same
    try:
        config = family.read(keys)
    except ValidationError as error:
        raise ArtifactError(f"not a model that can be built: {error}", place=place) from error
    keys.finish()
    return family, config if own is None else config.model_copy(update={"export_as": own})


def write_config(config: ModelConfig) -> tuple[Family, dict[str, Any]]:
    """The family that can express the model, and its config.json."""
    wanted = (find_family(config.export_as, "export_as"),) if config.export_as is not None else FAMILIES
    problems: dict[str, str] = {}
    for family in wanted:
        try:
            values = {"model_type": family.types[0], "architectures": [family.architecture], **family.write(config)}
            back = family.read(Keys(values, family.types[0]))
        except (ArtifactError, ValidationError) as error:
            problems[family.types[0]] = error.problem if isinstance(error, ArtifactError) else str(error)
            continue
        found = list(differences(architecture(config), architecture(back)))
        if not found:
            return family, values
        problems[family.types[0]] = "; ".join(found[:SHOWN])
    listed = "\n".join(f"  {name}: {problem}" for name, problem in problems.items())
    raise ArtifactError(
        f"no Hugging Face model type that Ingot knows can express this model:\n{listed}",
        fix="such a model stays in Ingot's own checkpoint format, or change the parts that are named",
    )


def architecture(config: ModelConfig) -> dict[str, Any]:
    """The fields that a forward pass depends on: every layer spelt out, training-only fields left out."""
    values = _without(config.model_dump(mode="json"))
    blocks = values.pop("blocks")
    values["layers"] = [blocks[name] for name in config.layer_names]
    if config.multi_token is not None:
        values["multi_token"]["block"] = blocks[config.multi_token.block]
        if config.multi_token.shared:  # one module: its user decides how many steps it is applied
            values["multi_token"] |= {"steps": 1, "shared": False}
    return values


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items() if key not in TRAINING_ONLY}
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two of these are not the same, with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            yield from differences(ours.get(key), theirs.get(key), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path} is {ours!r}, it would become {theirs!r}"
