"""Options of the stage `sft`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.config import TaskMixConfig
from ingot.post.algorithm import SFT, SftAlgorithm
from ingot.post.data.conversations.conversation_filter import FILTERS, ConversationFilter
from ingot.post.data.conversations.row_forms import RowForm
from ingot.post.passes_config import PassesConfig
from ingot.tokens.template_files import is_jinja
from ingot.train.config import LanguageConfig
from ingot.workspace.config import Config
from ingot.workspace.files import fingerprint

LEARN = (
    "assistant: all that it writes; last: its last turn only; everything: the user's words too; or a list of special tokens, of "
    "which, and of the ends of turns, alone is learnt"
)
FORM = (
    "messages, sharegpt, alpaca, prompt_completion, plain, or a function of yours as file.py:convert; auto: by its keys"
)
Learnt = Literal["assistant", "last", "everything"] | tuple[str, ...]


class ConversationFile(Config):
    """A file of conversations, or a data set, and how its rows are taken."""

    file: str = Field(description="JSONL or a JSON array (also compressed), Parquet, Arrow, a folder, or hf:NAME:SPLIT")
    weight: float = Field(
        1.0, gt=0, description="how often each conversation comes in a pass; 0.5: half of them, in turn"
    )
    share: float | None = Field(
        None, gt=0, le=1, description="instead of weight: the share of all conversations of a pass"
    )
    form: RowForm = Field("auto", description=FORM)
    learn: Learnt | None = Field(None, description="as `learn` of the stage, for this file (null: as that)")

    @model_validator(mode="after")
    def _one_amount(self) -> Self:
        if self.share is not None and self.weight != 1.0:
            raise ValueError("give either `weight` or `share`")
        return self


class SftConfig(PassesConfig, LanguageConfig):
    """Supervised fine-tuning on conversations, loss on assistant tokens unless `learn` says otherwise."""

    template: str | None = Field(
        None,
        description="chat template: a name (`ingot model template --help`), a Jinja file, or Jinja; null: the model's own",
    )
    template_options: Mapping[str, Any] = Field({}, description="its options, such as {assistant: me}")
    tasks: TaskMixConfig | None = Field(
        TaskMixConfig(),
        description="generated, verified conversations; null for none. Left out beside `files` or the conversations of an "
        "earlier stage: none",
    )
    task_conversations: int = Field(4000, ge=0, description="how many tasks are generated")
    follow_ups: float = Field(
        0.3,
        ge=0,
        le=1,
        description="chance that a task is asked as the next question of the conversation before it, of the same mode of "
        "thinking, where that fits into a row; such a share of what follows as `file_share` says are conversations of the files",
    )
    spare_tools: float = Field(
        0.0,
        ge=0,
        le=1,
        description="chance that a conversation of tasks or files that needs no tool is offered those of the other tasks (the "
        "calculator where none has a tool), as a chat offers them whatever is asked",
    )
    files: tuple[str | ConversationFile, ...] = Field(
        (), description="files of conversations, each by its name or as {file: NAME, weight: 2, form: alpaca}"
    )
    file_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="smallest share of all conversations that those of the files have: fewer are repeated; 0: each once",
    )
    learn: Learnt = Field("assistant", description=f"what of the conversations is learnt. {LEARN}")
    filters: tuple[Annotated[ConversationFilter, FILTERS], ...] = Field(
        (), description="what drops conversations of the files, in order: names, {filter: NAME, …} or file.py:Name"
    )
    too_long: Literal["error", "leave_out", "cut"] = Field(
        "error", description="a conversation that is longer than a row: an error, left out, or cut at the end; counted"
    )
    bad_rows: Literal["error", "leave_out"] = Field(
        "error", description="a row that is not a conversation: an error that names it, or left out; counted"
    )
    traces: Literal["learn", "drop"] = Field(
        "learn",
        description="reasoning traces in the files; drop: conversations are taken as if they had none. Where the chat template "
        "does not print them, learn is an error",
    )
    batch_conversations: int = Field(32, gt=0, description="conversations in one optimizer step")
    batch_tokens: int | None = Field(
        None,
        gt=0,
        description="instead of batch_conversations: tokens in one optimizer step at the most; at least one conversation",
    )
    algorithm: Annotated[SftAlgorithm, SFT] = Field(  # type: ignore[assignment]  # read by its name
        "cross_entropy", description="what is learnt from the conversations"
    )

    @property
    def step_tokens(self) -> int:
        """A row for each conversation at the most; two half-full ones for the tokens of one."""
        if self.batch_tokens is not None:
            return max(2 * self.batch_tokens, self.sequence_length)
        return self.batch_conversations * self.sequence_length

    @property
    def sources(self) -> list[ConversationFile]:
        """The files, each with its options."""
        return [ConversationFile(file=each) if isinstance(each, str) else each for each in self.files]

    def outside(self) -> dict[str, str]:
        """The files, and what filters read; a file that is not there is an error when the stage reads it, by its name."""
        read = {} if self.tasks is None else self.tasks.outside()
        if self.template is not None and not is_jinja(self.template) and Path(self.template).is_file():
            read |= {self.template: fingerprint(Path(self.template))}
        for each in self.filters:
            read |= each.outside()
        return read | file_fingerprints(source.file for source in self.sources)

    @model_validator(mode="after")
    def _files_are_enough(self) -> Self:
        if self.files and not self.written_tasks:
            self.__dict__["tasks"] = None  # frozen, but it is still being made
        return self

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """Conversations of an earlier stage are files, too."""
        if "conversations" in inputs and not self.files and not self.written_tasks:
            yield "tasks: there are conversations of one's own: write tasks: null, or which generated ones come beside them"
        if not self.files and "conversations" not in inputs:
            reason = "generated conversations are not filtered, cut or repeated, and there are no `files`"
            yield from self.unread("filters", "file_share", "too_long", "bad_rows", "traces", because=reason)

    @property
    def written_tasks(self) -> bool:
        """Whether the recipe says which tasks are learnt, or that none are."""
        return "tasks" in self.model_fields_set

    @model_validator(mode="after")
    def _shares_leave_room(self) -> Self:
        if self.file_share and any(source.share is not None for source in self.sources):
            raise ValueError("file_share is of all files together: leave it out where a file has its own share")
        return self

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if self.tasks is None:
            reason = "`tasks` is null" if self.written_tasks else "beside files `tasks` is null unless it is written"
            options = [name for name in ("task_conversations", "follow_ups", "file_share") if getattr(self, name)]
            self.refuse(*options, because=reason)
        if self.template is None:
            self.refuse("template_options", because="there is no `template`")
        if self.batch_tokens is not None:
            self.refuse("batch_conversations", because="`batch_tokens` says how large a step is")
        return self


def file_fingerprints(names: Iterable[str]) -> dict[str, str]:
    """The content of files and of folders of data, by their names; of a data set of the hub its name is all that is known."""
    found = dict[str, str]()
    for name in names:
        path = Path(name.removeprefix("hf:").partition(":")[0] if name.startswith("hf:") else name)
        if path.is_file():
            found[name] = fingerprint(path)
        elif path.is_dir():
            inside = (each for each in sorted(path.rglob("*")) if each.is_file())
            found |= {f"{name}/{each.relative_to(path)}": fingerprint(each) for each in inside}
    return found
