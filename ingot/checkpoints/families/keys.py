"""Reads the keys of a config.json, and raises an error for any key that was not understood.

Every key must be used or known to change nothing; `Keys.finish` raises an error with the keys that are neither. A missing
key takes the default that the transformers class has, which each family states where it reads the key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from ingot.workspace.errors import ArtifactError

T = TypeVar("T")
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"  # entries of `layer_types`
Values = dict[str, Any]  # keys of config.json, or fields of our options, with their values
Table = Mapping[str, tuple[str, Any]]  # key of config.json: our field, and the default of the transformers class

INERT = frozenset(
    {
        "_name_or_path", "architectures", "attention_dropout", "attn_implementation", "auto_map", "bos_token_id",
        "chunk_size_feed_forward", "dtype", "embd_pdrop", "eos_token_id", "ep_size", "experts_implementation",
        "hidden_dropout", "id2label", "is_encoder_decoder", "label2id", "max_length", "model_type",
        "output_attentions", "output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp",
        "problem_type", "resid_pdrop", "return_dict", "router_aux_loss_coef", "seq_aux", "aux_loss_alpha",
        "tokenizer_class", "torch_dtype", "transformers_version", "transformers.js_config", "unsloth_fixed", "use_cache",
        "_attn_implementation_autoset", "router_jitter_noise", "attention_probs_dropout_prob", "hidden_dropout_prob",
        "cache_implementation", "gradient_checkpointing", "router_z_loss_coef", "torchscript", "use_bfloat16",
    }
)  # fmt: skip
"""Keys that no number of the forward pass depends on (training and bookkeeping of transformers)."""


class Keys:
    """The keys of a config.json, with a memory of which were asked for.

    `tensors` are the names of the model's tensors, None where only the configuration is known: some checkpoints leave out
    optional parts that their configuration mentions (multi_token.py).
    """

    def __init__(self, values: Mapping[str, Any], place: str, tensors: Collection[str] | None = None) -> None:
        self.values, self.place = values, place
        self.tensors = None if tensors is None else frozenset(tensors)
        self._used: set[str] = set()

    def need(self, name: str) -> Any:
        """A value without which the model is not described."""
        self._used.add(name)
        if self.values.get(name) is None:
            raise ArtifactError(f"{name} is missing", place=self.place, fix="use the model's own config.json")
        value = self.values[name]
        if name.startswith("num_") and not isinstance(value, int):
            raise ArtifactError(f"{name} is {value!r}, not a whole number", place=self.place)
        return value

    def get(self, name: str, default: T) -> T:
        """A value, or what the transformers class has where the key is missing (or null)."""
        self._used.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def raw(self, name: str, default: Any = None) -> Any:
        """A value for which null means something."""
        self._used.add(name)
        return self.values.get(name, default)

    def fields(self, table: Table) -> Values:
        """Our fields of a table; `written` does the reverse."""
        return {field: self.get(name, default) for name, (field, default) in table.items()}

    def has(self, name: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(name) is not None

    def expect(self, **values: Any) -> None:
        """Keys that are understood with these values only (or when missing)."""
        for name, value in values.items():
            if self.get(name, value) != value:
                self.refuse(f"{name} = {self.values[name]!r}; Ingot can build {value!r} only")

    def ignore(self, *names: str) -> None:
        """Keys of this family that change nothing in the forward pass."""
        self._used.update(names)

    def having(self, **values: Any) -> Keys:
        """The same keys with some values replaced; what is asked of the copy counts as used."""
        copy = Keys({**self.values, **values}, self.place, self.tensors)
        copy._used = self._used
        return copy

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error of a configuration that cannot be built."""
        raise ArtifactError(problem, place=self.place, fix="import a model without this part")

    def finish(self) -> None:
        """Raise an error if a key was not understood."""
        unknown = sorted(set(self.values) - self._used - INERT)
        if unknown:
            listed = ", ".join(f"{name} = {self.values[name]!r}" for name in unknown)
            raise ArtifactError(
                f"keys that Ingot does not understand: {listed}",
                place=self.place,
                fix="they may change what the model computes; remove the ones that do not",
            )


def written(part: object, table: Table) -> Values:
    """The keys of config.json for the fields of a part that a table lists."""
    return {name: getattr(part, field) for name, (field, _) in table.items()}
