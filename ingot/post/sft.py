"""The stage `sft`: supervised fine-tuning on packed conversations.

The mask of what the assistant writes comes from the chat template (tokens/chat.py), which refuses a conversation with nothing
to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.post.config import SftConfig
from ingot.post.conversation_file import file_conversations
from ingot.post.conversations import PoolSource, repeats, task_conversations
from ingot.post.policy import chat_format
from ingot.post.stage import PostStage
from ingot.tokens.batch import TokenSequence
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class Sft(PostStage[SftConfig]):
    """Conversations from files and from tasks, in a new order in every pass."""

    count = 0

    def source(self) -> PoolSource:
        config, chat = self.config, chat_format(self.model)
        longest = config.sequence_length + 1  # the last token is only predicted
        own = [each for name in config.files for each in file_conversations(Path(name), chat, longest)]
        tasks = list[TokenSequence]()
        if config.tasks is not None:
            shares = config.follow_ups, config.spare_tools
            tasks = task_conversations(
                config.tasks, chat, config.task_conversations, self.folder.seed, longest, *shares
            )
        conversations = own * repeats(len(own), len(tasks), config.file_share) + tasks
        if not conversations:
            fix = "give `tasks` with task_conversations > 0, or `files`"
            raise RecipeError("the stage has no conversations", place="sft", fix=fix)
        self.count = len(conversations)
        sizes = config.batch_conversations, config.sequence_length, config.micro_batch_tokens
        return PoolSource([[conversation] for conversation in conversations], *sizes, self.folder.seed)

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        return {"conversations": self.count, "loss": last["loss"], "tokens": last["tokens"]}


def run(config: SftConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Fine-tune the input checkpoint; makes a checkpoint."""
    return Sft(config, inputs, folder).run()
