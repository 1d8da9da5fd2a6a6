"""Drops what steps of data curation drop: copies, near copies, and what stands in eval sets.

    {filter: curate, steps: [{step: exact_dedup}, {step: near_dedup, min_jaccard: 0.8}, {step: decontaminate, against: [EVAL]}]}

Any step of `curate` that removes documents can be named; the conversations are its documents, all together, whatever file they
are from. A step that rewrites a text is refused: the conversation would stay as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ingot.data.outside import STEPS
from ingot.data.step import Step
from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation
    from ingot.workspace.stage import StageFolder

PART = 4096  # conversations in a row group
SHOWN = 2000  # characters of a removed one


class CurateFilter(ConversationFilter):
    """Steps of data curation over conversations: copies, near copies, contamination by evals."""

    steps: list[Annotated[Step, STEPS]] = Field(min_length=1, description="steps of `curate`, in order")
    of: Literal["conversation", "question", "answers"] = Field(
        "conversation",
        description="what they look at: all that is said, what the user says, or what the assistant does",
    )
    workers: int | None = Field(None, ge=1, description="processes (null: one for each processor)")

    @model_validator(mode="after")
    def _remove_only(self) -> Self:
        for step in self.steps:
            if "text" in step.writes():
                raise ValueError(f"the step {step.short_name} rewrites texts; name steps that remove documents")
        return self

    def outside(self) -> dict[str, str]:
        """What the steps read."""
        return {name: found for step in self.steps for name, found in step.outside().items()}

    def reason(self, conversation: Conversation) -> str | None:
        """One conversation by itself gives no reason: they are compared, by `dropped`."""
        return None

    def document(self, conversation: Conversation) -> str:
        """What the steps look at."""
        if self.of == "question":
            return conversation.question
        if self.of == "answers":
            return "\n\n".join(message.content for message in conversation.answers)
        return conversation.text

    def dropped(self, documents: Iterable[tuple[str, str]], folder: StageFolder) -> Iterator[tuple[str, str, str]]:
        """Name, reason and text of the documents (name, text) that the steps remove; `folder` is where they work."""
        import pyarrow.parquet

        from ingot.data.config import CurateConfig
        from ingot.data.curate import run

        folder.path.mkdir(parents=True, exist_ok=True)
        _write(documents, folder.path / "conversations.parquet")
        config = CurateConfig.model_validate(
            {
                "sources": [{"files": str(folder.path / "conversations.parquet"), "name": "conversations"}],
                "steps": self.steps,
                "workers": self.workers,
                "work_folder": str(folder.path / "work"),
                "keep_work": False,
            }
        )
        run(config, {}, folder)
        for part in sorted((folder.path / "removed").glob("part-*.parquet")):
            rows = pyarrow.parquet.read_table(part, columns=["id", "text", "step", "rule", "detail"]).to_pylist()
            yield from (
                (row["id"], f"{row['step']}: {row['rule']} {row['detail']}", row["text"][:SHOWN]) for row in rows
            )


def _write(documents: Iterable[tuple[str, str]], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("id", pyarrow.string()), ("text", pyarrow.string())])
    rows: list[dict[str, Any]] = []
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for name, text in documents:
            rows.append({"id": name, "text": text or " "})
            if len(rows) == PART:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows = []
        if rows:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
