"""The stage `sft`: supervised fine-tuning on packed conversations.

Conversations come from files (of any form of row_forms.py), from an earlier `synthesize` stage and from generated tasks. They are
filtered, rendered and stored on disk once (conversation_store.py), and drawn by their sources' weights, in a new order in every
pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ingot.envs.rows import stream_rows
from ingot.post.barrier import Between
from ingot.post.data.conversations.compared import compare
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.conversation_file import RowReading, can_follow, read_row
from ingot.post.data.conversations.conversation_store import (
    ConversationStore,
    Placed,
    StoreReport,
    StoreSource,
    write_store,
)
from ingot.post.data.conversations.mixed_pool import MixedPool, weights_of_shares
from ingot.post.data.conversations.sequences import repeats, task_conversations, tools_of_chat
from ingot.post.data.conversations.sft_source import ConversationSource
from ingot.post.data.filters.curate import CurateFilter
from ingot.post.policy import chat_format, chat_tokenizer
from ingot.post.sft_config import ConversationFile, SftConfig
from ingot.post.stage import PostStage
from ingot.tokens.add_tokens import with_template
from ingot.tokens.template_files import template_text
from ingot.workspace.config import content_hash
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import fingerprint, write_jsonl
from ingot.workspace.outside import digests, without_paths
from ingot.workspace.stage import StageFolder

MUCH = 8_000_000  # bytes of files from which several processes render them: they take seconds to start
TASKS = "tasks"
FOLLOWERS = 10_000  # conversations of files that come after other questions, too; more would not be seen twice


class Sft(PostStage[SftConfig]):
    """Conversations from files, from an earlier `synthesize` stage and from tasks."""

    report = StoreReport()

    def __init__(self, config: SftConfig, inputs: Mapping[str, Path], folder: StageFolder) -> None:
        super().__init__(config, inputs, folder)
        if config.template is not None:
            text = template_text(config.template, config.template_options)
            self.model.tokenizer = with_template(chat_tokenizer(self.model), text)

    def source(self) -> ConversationSource:
        config, say = self.config, self.folder.progress.say
        store = self._store()
        self.report = store.report
        if not len(store):
            fix = "give `tasks` with task_conversations > 0, `files`, or a `synthesize` stage with `environments` before it"
            lost = f": dropped were {dict(store.report.dropped)}" if store.report.dropped else ""
            raise RecipeError(f"the stage has no conversations{lost}", place="sft", fix=fix)
        pool = MixedPool(store.report.sequences, self._weights(store.report), self.folder.seed)
        source = ConversationSource(store, pool, config, self.folder.seed)
        for name, count in store.report.dropped.items():
            say(f"dropped by {name}: {count:,} (examples in dropped.jsonl)")
        if store.report.cut:
            say(f"cut at {config.sequence_length + 1:,} tokens: {store.report.cut:,} conversations")
        return source

    @property
    def _files(self) -> list[ConversationFile]:
        """Those of the recipe, and those that an earlier stage has made."""
        made = sorted(self.inputs["conversations"].glob("*.jsonl")) if "conversations" in self.inputs else []
        return [*self.config.sources, *(ConversationFile(file=str(path)) for path in made)]

    def _weights(self, report: StoreReport) -> list[float]:
        """How often the conversations of each source come in a pass."""
        files, others = self._files, len(report.sequences) - len(self._files)
        own = sum(report.sequences[: len(files)])
        times = repeats(own, sum(report.sequences) - own, self.config.file_share)
        weights = [file.weight * times for file in files] + [1.0] * others
        shares = [file.share for file in files] + [None] * others
        return weights_of_shares(report.sequences, weights, shares, report.names)

    def _store(self) -> ConversationStore:
        """The stored sequences; one process writes them where they are not there."""
        folder = self.folder.path / f"sequences-{self._key()}"
        if not self.processes.once(folder.is_dir):
            self.processes.share(1, lambda run, between: self._write(folder, between))
        return ConversationStore(folder)

    def _key(self) -> str:
        """All that the sequences follow from."""
        config, tokenizer = self.config, chat_format(self.model).tokenizer
        named = {"files", "learn", "filters", "too_long", "bad_rows", "traces", "sequence_length"}
        named |= {"tasks", "task_conversations", "follow_ups", "spare_tools", "file_share"}
        options = config.model_dump(mode="json", include=named)
        return content_hash(
            {
                "options": without_paths(options),
                "code": without_paths(digests(options)),
                "outside": config.outside(),
                "made": [fingerprint(Path(file.file)) for file in self._files[len(config.files) :]],
                "tokenizer": {name: content_hash(data.hex()) for name, data in tokenizer.to_files().items()},
                "seed": self.folder.seed,
            }
        )

    def _write(self, folder: Path, between: Between) -> list[None]:
        """Nothing is returned but that it is done."""
        config, chat = self.config, chat_format(self.model)
        longest = config.sequence_length + 1  # the last token is only predicted
        alone = tuple(each for each in config.filters if not isinstance(each, CurateFilter))
        spare = tuple(tools_of_chat(config.tasks, self.folder.seed)) if config.spare_tools else ()
        sources = [
            StoreSource(
                file.file,
                partial(_read, file.file),
                RowReading(
                    file.form,
                    file.learn or config.learn,
                    longest,
                    config.too_long,
                    config.bad_rows,
                    config.traces,
                    alone,
                    config.spare_tools,
                    spare,
                ),
            )
            for file in self._files
        ]
        comparing = [each for each in config.filters if isinstance(each, CurateFilter)]
        sources, dropped = compare(sources, comparing, self.folder, between) if comparing else (sources, [])
        generated = {}
        if config.tasks is not None:
            sizes = config.task_conversations, self.folder.seed, longest
            options = config.follow_ups, config.spare_tools, config.learn
            others = self._followers(sources) if config.file_share * config.follow_ups else []
            generated[TASKS] = task_conversations(config.tasks, chat, *sizes, *options, others, config.file_share)
        size = sum(Path(file.file).stat().st_size for file in self._files if Path(file.file).is_file())
        workers = None if size > MUCH or any(not Path(file.file).is_file() for file in self._files) else 1
        write_store(folder, sources, chat.tokenizer, generated, dropped, workers=workers, between=between)
        examples = ConversationStore(folder).report.examples
        write_jsonl(self.folder.path / "dropped.jsonl", [vars(each) for each in examples])
        return [None]

    def _followers(self, sources: list[StoreSource]) -> list[Conversation]:
        """The first conversations of the files that can come after other questions."""
        found = (
            each
            for source in sources
            if source.reading.learn == self.config.learn
            for place, row, kept in source.read()
            for number, each in enumerate(read_row(place, row, source.reading))
            if isinstance(each, Conversation) and (kept is None or kept[number]) and can_follow(each)
        )
        return list(islice(found, FOLLOWERS))

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        told = {"conversations": sum(self.report.sequences), "loss": last["loss"], "tokens": last["tokens"]}
        told |= {"dropped": dict(self.report.dropped)} if self.report.dropped else {}
        return told | ({"cut": self.report.cut} if self.report.cut else {})


def _read(file: str) -> Iterator[Placed]:
    return ((place, row, None) for place, row in stream_rows(file))


def run(config: SftConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Fine-tune the input checkpoint; makes a checkpoint."""
    return Sft(config, inputs, folder).run()
