"""Supervised fine-tuning: cross-entropy on the assistant's tokens of packed conversations.

    loss = −Σ_t w_t log p_t / Σ_t w_t,   w_t = 1 on what the assistant writes, 0 on what it is given

The mask comes from the chat template (tokens/chat.py), which refuses a conversation with nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.post.config import SftConfig
from ingot.post.conversation_file import file_conversations
from ingot.post.conversations import PoolSource, task_conversations
from ingot.post.policy import chat_format
from ingot.post.processes import begin
from ingot.train.language import language_terms
from ingot.train.loop import Trainer
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


def run(config: SftConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Fine-tune the input checkpoint; makes a checkpoint."""
    layout, model, fill = begin(config, inputs["checkpoint"])
    chat = chat_format(model)
    longest = config.sequence_length + 1  # the last token is only predicted
    conversations = [each for name in config.files for each in file_conversations(Path(name), chat, longest)]
    if config.tasks is not None:
        conversations += task_conversations(
            config.tasks, chat, config.task_conversations, folder.seed, longest, config.follow_ups
        )
    if not conversations:
        raise RecipeError(
            "the stage has no conversations", place="sft", fix="give `tasks` with task_conversations > 0, or `files`"
        )
    groups = [[conversation] for conversation in conversations]
    source = PoolSource(
        groups, config.batch_conversations, config.sequence_length, config.micro_batch_tokens, folder.seed
    )
    last = Trainer(model, language_terms(model, config), source, config, folder, fill=fill, layout=layout).run()
    return {"conversations": len(conversations), "loss": last["loss"], "tokens": last["tokens"]}
