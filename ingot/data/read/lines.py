"""Whole lines out of a stream, in blocks, with a limit on how long one may be."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.data.read.problem import Problems, Unreadable
from ingot.data.read.split import Piece
from ingot.data.read.streams import chunks, compression_of, opened


def line_blocks(piece: Piece, max_line: int, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines that start in the piece's range, each with its offset in the (uncompressed) file.

    A line much longer than `max_line` is skipped without being held in memory (one that is a little longer may come
    through: the limit is exact where lines are looked at). Damage ends the file after its good lines.
    """
    with opened(piece.path) as file:
        offset = max(0, piece.start - 1)  # the byte before tells whether a line starts exactly at `start`
        file.seek(offset)
        held: list[bytes] = []  # the beginning of a line whose end is not read yet
        size = 0
        skipping = piece.start > 0  # at first what is left of the line before; later a line that is too long
        too_long = False
        try:
            for chunk in chunks(file, compression_of(piece.path)):
                end_of_lines = chunk.rfind(b"\n") + 1
                if end_of_lines == 0:
                    size += len(chunk)
                    if not skipping:
                        held.append(chunk)
                        skipping = too_long = size > max_line
                        held = [] if too_long else held
                    continue
                begin = 0
                if skipping:
                    begin = chunk.index(b"\n") + 1
                    if too_long:
                        report_long(piece, offset, size + begin - 1, max_line, problems)
                    offset += size + begin
                    skipping = too_long = False
                block = b"".join([*held, chunk[begin:end_of_lines]])
                if 0 <= piece.end <= offset:
                    return
                if 0 <= piece.end <= offset + len(block):  # the last line is the one that holds the byte before `end`
                    yield offset, block[: block.index(b"\n", piece.end - 1 - offset) + 1]
                    return
                yield offset, block
                offset += len(block)
                held, size = [chunk[end_of_lines:]], len(chunk) - end_of_lines
        except Unreadable as error:
            problems.add(f"{piece.identity}@{offset}", error.rule, error.detail)
            return
        if too_long:
            report_long(piece, offset, size, max_line, problems)
        elif size and not skipping and not 0 <= piece.end <= offset:
            yield offset, b"".join(held)


def report_long(piece: Piece, offset: int, size: int, max_line: int, problems: Problems) -> None:
    """Count a line that was skipped."""
    problems.add(f"{piece.identity}@{offset}", "too long", f"(a line of {size:,} bytes > {max_line:,})", size=size)
