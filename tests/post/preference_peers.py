"""TRL's trainers of preferences, and the same answers batched as each of them wants.

Nothing of TRL's formulas is written here: its own code computes every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.experimental.utils import DPODataCollatorWithPadding
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from ingot.envs.episode import Episode
from ingot.post.data.pairs.pair import Pair
from ingot.tokens.tokenizer import Tokenizer
from tests.post.making import episode, random_tokens
from tests.post.peers import PLAIN, peer_tokenizer

PAD = 1
LENGTHS = [(5, 9, 4), (12, 3, 3), (7, 1, 20), (30, 11, 6), (2, 8, 8)]  # prompt, chosen, rejected
PAIR_ROWS = [{"prompt": "1 + 1", "chosen": "2", "rejected": "3"}]
RATED_ROWS = [
    {"prompt": "1 + 1", "completion": "2", "label": True},
    {"prompt": "1 + 2", "completion": "2", "label": False},
]


def make_pairs(size: int) -> list[Pair[Episode]]:
    """Pairs of random tokens of a vocabulary of `size`."""
    generator = torch.Generator().manual_seed(5)
    pairs = []
    for prompt_length, *answers in LENGTHS:
        prompt = random_tokens(prompt_length, size, generator)
        tokens = [random_tokens(length, size, generator) for length in answers]
        pairs.append(Pair(*(episode([("prompt", prompt), ("assistant", answer)]) for answer in tokens)))
    return pairs


def padded(pairs: Sequence[Pair[Episode]]) -> Any:
    """The pairs as the collator of TRL's DPO trainer batches them."""
    rows = [
        {
            "prompt_ids": pair.chosen.nodes[0].tokens,
            "chosen_ids": pair.chosen.nodes[1].tokens,
            "rejected_ids": pair.rejected.nodes[1].tokens,
        }
        for pair in pairs
    ]
    return DataCollatorForPreference(pad_token_id=PAD)(rows)


def padded_halves(pairs: Sequence[Pair[Episode]]) -> Any:
    """The pairs as the collator of TRL's ORPO and CPO trainers batches them."""
    rows = []
    for pair in pairs:
        row: dict[str, Any] = {}
        for name, half in (("chosen", pair.chosen), ("rejected", pair.rejected)):
            tokens = half.tokens()
            row[f"{name}_input_ids"], row[f"{name}_attention_mask"] = tokens, [1] * len(tokens)
            marked = zip(tokens, half.sampled(), strict=True)
            row[f"{name}_labels"] = [token if one else -100 for token, one in marked]
        rows.append(row)
    return DPODataCollatorWithPadding(pad_token_id=PAD)(rows)


def padded_rated(answers: Sequence[Episode], labels: Sequence[bool]) -> Any:
    """Rated answers as the collator of TRL's KTO trainer batches them, with the mismatched answers that it would choose."""
    completions = [each.nodes[1].tokens for each in answers]
    rows = [
        {"prompt_ids": each.nodes[0].tokens, "completion_ids": own, "KL_completion_ids": other, "label": label}
        for each, own, other, label in zip(
            answers, completions, [completions[-1], *completions[:-1]], labels, strict=True
        )
    ]
    return DataCollatorForUnpairedPreference(pad_token_id=PAD)(rows)


def orpo_trainer(policy: Any, tokenizer: Tokenizer, folder: Path, **options: Any) -> Any:
    """TRL's ORPO trainer; its data set is only there because it asks for one."""
    config = ORPOConfig(output_dir=str(folder), **PLAIN, **options)
    rows = Dataset.from_list(PAIR_ROWS)
    return ORPOTrainer(policy, config, train_dataset=rows, processing_class=peer_tokenizer(tokenizer))


def simpo_trainer(policy: Any, tokenizer: Tokenizer, folder: Path, **options: Any) -> Any:
    """TRL's CPO trainer with SimPO's loss alone: by default it would add the cross-entropy of the chosen answers."""
    config = CPOConfig(output_dir=str(folder), loss_type="simpo", cpo_alpha=0.0, **PLAIN, **options)
    rows = Dataset.from_list(PAIR_ROWS)
    return CPOTrainer(policy, config, train_dataset=rows, processing_class=peer_tokenizer(tokenizer))


def kto_trainer(policy: Any, reference: Any, tokenizer: Tokenizer, folder: Path, **options: Any) -> Any:
    """TRL's KTO trainer; its data set is only there because it asks for one."""
    config = KTOConfig(output_dir=str(folder), **PLAIN, **options)
    rows = Dataset.from_list(RATED_ROWS)
    return KTOTrainer(policy, reference, config, train_dataset=rows, processing_class=peer_tokenizer(tokenizer))
