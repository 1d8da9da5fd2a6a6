"""Filters that compare conversations with one another: rows are read for them before they are read to be rendered.

What stays is one byte for each conversation of each row, so that each reading keeps the rows' order and needs no copy of them.
Filters that look at one conversation come first, whatever their place in the list: they are cheap, and what they drop need not
be compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.conversation_file import Dropped, read_row
from ingot.post.data.conversations.conversation_store import Placed, StoreSource
from ingot.post.data.filters.curate import CurateFilter
from ingot.workspace.stage import StageFolder


@dataclass(frozen=True)
class Verdicts:
    """Of one source: how many conversations each row has, and which of them stay."""

    sizes: array[int] = field(default_factory=lambda: array("H"))
    stays: array[int] = field(default_factory=lambda: array("b"))


def compare(
    sources: Sequence[StoreSource], filters: Sequence[CurateFilter], folder: StageFolder, between: Callable[[], None]
) -> tuple[list[StoreSource], list[Dropped]]:
    """The sources without what the filters drop, their own filters included, and what that is."""
    verdicts, dropped = [Verdicts() for _ in sources], list[Dropped]()
    for source, verdict in zip(sources, verdicts, strict=True):
        for place, row, _ in source.read():
            found = list(read_row(place, row, source.reading))
            verdict.sizes.append(len(found))
            verdict.stays.extend(isinstance(each, Conversation) for each in found)
            dropped += [each for each in found if isinstance(each, Dropped)]
            between()
    left = [replace(source, reading=replace(source.reading, filters=())) for source in sources]
    for number, each in enumerate(filters):
        own = StageFolder(folder.path / f"compared-{number}", folder.seed, folder.progress, folder.stop)
        for name, reason, text in each.dropped(_documents(left, verdicts, each, between), own):
            source_number, at, where = name.split(":", 2)
            verdicts[int(source_number)].stays[int(at)] = False
            dropped.append(Dropped(each.short_name, reason, where, text))
    return [_kept(source, verdict) for source, verdict in zip(left, verdicts, strict=True)], dropped


def _documents(
    sources: Sequence[StoreSource], verdicts: Sequence[Verdicts], filter: CurateFilter, between: Callable[[], None]
) -> Iterator[tuple[str, str]]:
    """Name and text of every conversation that is still there; the name says where it is."""
    for number, (source, verdict) in enumerate(zip(sources, verdicts, strict=True)):
        at = 0
        for place, row, _ in source.read():
            between()
            for each in read_row(place, row, source.reading):
                if verdict.stays[at] and isinstance(each, Conversation):
                    yield f"{number}:{at}:{place}", filter.document(each)
                at += 1


def _kept(source: StoreSource, verdict: Verdicts) -> StoreSource:
    """The source with only what stays."""

    def read() -> Iterator[Placed]:
        at = 0
        for (place, row, _), size in zip(source.read(), verdict.sizes, strict=True):
            stays = verdict.stays[at : at + size]
            at += size
            if any(stays):
                yield place, row, tuple(map(bool, stays))

    return replace(source, read=read)
