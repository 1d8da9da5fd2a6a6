"""Preference training: length-normalised DPO on the model's own right and wrong answers.

    −log σ( β (D_w/|y_w| − D_l/|y_l|) ),   D = Σ_t log π(y_t) − log ref(y_t)      (arXiv 2305.18290; Tülu 3, arXiv 2411.15124)

plus, with a small weight, cross-entropy on the chosen answer: DPO alone may lower both likelihoods as long as the gap
grows (Llama 3, arXiv 2407.21783, section 4.1.4). The reference is the input checkpoint; its log-probabilities are computed
once. Pairs are a pure function of the input checkpoint and the seed. Answers and log-probabilities are kept piece by piece
(kept.py): an interrupted stage goes on behind those that are there, and finds the pairs of an undisturbed one. In several
processes the whole model that sampled them is gone before the one that is trained is divided (processes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.post.config import PreferConfig
from ingot.post.pairs import PairSource, pair_sequences, sample_pairs
from ingot.post.processes import Processes, begin
from ingot.train.loop import Trainer
from ingot.train.terms import CrossEntropy, Preference
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder


def run(config: PreferConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Sample pairs from the input checkpoint and train on them; makes a checkpoint."""
    layout, model, fill = begin(config, inputs["checkpoint"])
    processes = Processes(layout, folder.stop)
    whole = processes.whole(model, inputs["checkpoint"])
    folder.progress.say(f"sampling {config.prompts * config.samples} answers to {config.prompts} tasks")
    pairs, right = sample_pairs(whole, config, folder.seed, processes, folder)
    folder.progress.say(f"{len(pairs)} pairs; {right:.0%} of the answers were right")
    if len(pairs) < config.batch_pairs:
        raise CheckFailed(
            f"only {len(pairs)} preference pairs, a step needs {config.batch_pairs} ({right:.0%} of the answers were right)",
            place=str(folder.path),
            fix="sample more prompts, or choose tasks that the model gets right sometimes and wrong sometimes",
        )
    tokenizer = model.tokenizer
    assert tokenizer is not None  # sample_pairs has used it
    rows = [
        {
            "task_id": pair.chosen.task.id,
            "prompt": pair.chosen.task.question,
            "chosen": pair.chosen.reply(tokenizer),
            "rejected": pair.rejected.reply(tokenizer),
        }
        for pair in pairs
    ]
    processes.once(lambda: write_jsonl(folder.path / "pairs.jsonl", rows))
    groups = pair_sequences(pairs, whole, config.sequence_length, processes, folder)
    del whole  # a copy makes room for the model that is trained
    source = PairSource(groups, config.batch_pairs, config.sequence_length, config.micro_batch_tokens, folder.seed)
    terms = [Preference(config.beta, config.length_normalised), CrossEntropy(coefficient=config.anchor)]
    last = Trainer(model, terms, source, config, folder, fill=fill, layout=layout).run()
    return {"pairs": len(pairs), **{name: last[name] for name in ("loss", "preference_accuracy", "margin")}}
