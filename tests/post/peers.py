"""The same model in transformers, and TRL's trainers around it: what the tests of this room compare with.

Nothing of TRL's formulas is written here: its own code computes every number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from ingot.checkpoints.families.table import write_config
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import END_OF_TEXT, PAD, Tokenizer
from tests.checkpoints.whole import written_tensors

# what TRL switches on by default and a comparison in float32 on the CPU must not have
PLAIN: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "disable_tqdm": True,
}


def llama(model: Transformer) -> Any:
    """A transformers Llama with the weights of `model`."""
    _, values = write_config(model.config)
    peer = LlamaForCausalLM(LlamaConfig(**values | {"bos_token_id": None, "eos_token_id": 0}))
    give_weights(peer, model)
    return peer


def give_weights(peer: Any, model: Transformer) -> None:
    """Set the weights of the Llama to those of `model`."""
    named = as_llama(model, dict(model.named_parameters()))
    assert named.keys() == {name for name, _ in peer.named_parameters()}
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            parameter.copy_(named[name])


def as_llama(model: Transformer, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights or gradients of `model` under the names that transformers gives them."""
    family, _ = write_config(model.config)
    return written_tensors(family.layout(model.config), named)


def gradient_difference(model: Transformer, gradients: Mapping[str, Tensor], peer: Any) -> float:
    """The largest difference in any parameter's gradient, relative to the largest gradient of that parameter."""
    named = as_llama(model, gradients)
    assert named.keys() == {name for name, _ in peer.named_parameters()}
    return max(
        float((named[name] - parameter.grad).abs().max() / parameter.grad.abs().max())
        for name, parameter in peer.named_parameters()
    )


def peer_tokenizer(tokenizer: Tokenizer) -> Any:
    """Our tokenizer as transformers sees it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend,
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        chat_template=tokenizer.chat_template,
    )


def dpo_trainer(policy: Any, reference: Any, tokenizer: Tokenizer, folder: Path, **options: Any) -> Any:
    """TRL's DPO trainer; its data set is only there because it asks for one."""
    rows = Dataset.from_list([{"prompt": "1 + 1", "chosen": "2", "rejected": "3"}])
    config = DPOConfig(output_dir=str(folder), **PLAIN, **options)
    return DPOTrainer(policy, reference, config, train_dataset=rows, processing_class=peer_tokenizer(tokenizer))


def grpo_trainer(
    sampler: Any, reference: Any, tokenizer: Tokenizer, folder: Path, rewards: Sequence[float], **options: Any
) -> Any:
    """TRL's GRPO trainer for one batch with the given rewards. Two iterations a batch, so that it keeps the sampler's
    log-probabilities, which a later policy is compared with."""
    reference.save_pretrained(folder / "reference")  # TRL reads the reference model where the policy came from
    sampler.config._name_or_path = str(folder / "reference")
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(rewards),
        num_iterations=2,
        loss_type="dapo",
        **PLAIN,
        **options,
    )
    return GRPOTrainer(
        sampler,
        reward_funcs=lambda completions, **_: list(rewards),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "1 + 1"}] * len(rewards)),
        processing_class=peer_tokenizer(tokenizer),
    )


def rloo_trainer(sampler: Any, tokenizer: Tokenizer, folder: Path, rewards: Sequence[float], **options: Any) -> Any:
    """TRL's RLOO trainer for one batch with the given rewards; the reference is read as GRPO's is."""
    sampler.save_pretrained(folder / "reference")
    sampler.config._name_or_path = str(folder / "reference")
    config = RLOOConfig(
        output_dir=str(folder), per_device_train_batch_size=len(rewards), num_iterations=2, **PLAIN, **options
    )
    return RLOOTrainer(
        sampler,
        reward_funcs=lambda completions, **_: list(rewards),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "1 + 1"}] * len(rewards)),
        processing_class=peer_tokenizer(tokenizer),
    )
