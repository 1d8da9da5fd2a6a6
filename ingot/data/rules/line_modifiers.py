"""Lines that are no prose go, as in the pipelines of DCLM and OLMo 3; a document that loses too many words goes whole.

For each line (text.split("\\n")), empty ones excepted:

    upper-case letters / characters > 0.5              the line goes
    digits 0-9 / characters > 0.999999                 the line goes
    "1,204 likes", "3.5K shares", … and nothing else   the line goes
    fewer than 2 white-space words                     the line goes
    "items in cart", "Read more...", "Sign-in"         cut out of lines of at most 10 words; a line left blank goes

and the document goes if more than 5 % of its words went. datamap-rs, the code of OLMo 3, divides by bytes rather than
characters, takes the dots of "Read more..." for any character, and its 10-word limit does not reach the code, because
the option has another name there; here they are what the configuration says.
"""

from __future__ import annotations

import numpy as np
import pyarrow

from ingot.data.native import loop
from ingot.data.rules.config import LineModifiersStep
from ingot.data.rules.gopher_quality import per
from ingot.data.step import PerDocument, Rule, at_most, numbers
from ingot.data.text.arrays import Bytes, Places, Sizes
from ingot.data.text.characters import SPACE, UPPER, WORD, character_flags, code_point, pass_over, width
from ingot.data.text.lines import lines_of
from ingot.data.text.phrases import Phrases, find_phrases, stands_at
from ingot.data.text.spans import copy_span
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import count_words

COUNTED = ["likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes", "downvotes",
           "downloads", "views", "followers"]  # fmt: skip
WHERE = {"any": 0, "prefix": 1, "suffix": 2}


@loop
def _upper_case(data: Bytes, start: int, stop: int, characters: int, table: Bytes) -> int:
    """The number of upper-case letters."""
    count = 0
    if characters == stop - start:
        for byte in data[start:stop]:
            count += (byte >= 0x41) & (byte <= 0x5A)
        return count
    at = start
    while at < stop:
        count += (table[code_point(data, at)] & UPPER) != 0
        at += width(data[at])
    return count


@loop
def _digits_end(data: Bytes, at: int, stop: int) -> int:
    """Where a run of digits ends."""
    while at < stop and 0x30 <= data[at] <= 0x39:
        at += 1
    return at


@loop
def _is_counter(data: Bytes, at: int, stop: int, table: Bytes, names: Phrases) -> bool:
    """Is the line a number, perhaps with K, M or B, and a name of what was counted, among anything that is not \\w?"""
    at = pass_over(data, at, stop, table, WORD, False)
    if at == stop or not 0x30 <= data[at] <= 0x39:
        return False
    while at < stop and (0x30 <= data[at] <= 0x39 or data[at] == 0x2C or data[at] == 0x2E):
        at += 1
    if at < stop:
        unit = names.fold[data[at]]
        at += unit == 0x6B or unit == 0x6D or unit == 0x62  # k, m, b
    space = at
    at = pass_over(data, at, stop, table, SPACE, True)
    if at == space:
        return False
    for name in range(len(names.numbers)):
        if stands_at(data, at, stop, names, name):
            at += names.offsets[name + 1] - names.offsets[name]
            return pass_over(data, at, stop, table, WORD, False) == stop
    return False


@loop
def _cut_phrase(data: Bytes, start: int, stop: int, phrases: Phrases, phrase: int, where: int) -> int:
    """Take a phrase, with a space at either side, out of data[start : stop] in place; where the line ends then."""
    write = at = start
    length = phrases.offsets[phrase + 1] - phrases.offsets[phrase]
    while at < stop:
        place = at
        if data[at] == 0x20 and stands_at(data, at + 1, stop, phrases, phrase):
            place = at + 1
        elif not stands_at(data, at, stop, phrases, phrase):
            place = -1
        if place >= 0 and (where != 1 or place == start) and (where != 2 or place + length == stop):
            at = place + length
            if where != 2 and at < stop and data[at] == 0x20:
                at += 1
            if where == 0:
                data[write] = 0x20
                write += 1
            continue
        data[write] = data[at]
        write += 1
        at += 1
    return write


@loop
def _modify(
    data: Bytes,
    line_starts: Places,
    line_ends: Places,
    line_characters: Sizes,
    line_offsets: Places,
    table: Bytes,
    names: Phrases,
    phrases: Phrases,
    order: Places,
    where: Places,
    max_upper_case: float,
    max_numeric: float,
    counters: bool,
    min_words: int,
    max_phrase_words: int,
    result: Bytes,
    result_offsets: Places,
    removed_lines: Places,
    removed_words: Places,
    all_words: Places,
) -> int:
    """Rewrite every text into `result`; its size."""
    size = 0
    for text in range(len(line_offsets) - 1):
        result_offsets[text] = size
        kept = 0
        for line in range(line_offsets[text], line_offsets[text + 1]):
            start, stop, characters = line_starts[line], line_ends[line], line_characters[line]
            words = count_words(data, start, stop, table)
            all_words[text] += words
            if stop > start and (
                words < min_words
                or (counters and _is_counter(data, start, stop, table, names))
                or (_digits_end(data, start, stop) - start) > max_numeric * characters
                or _upper_case(data, start, stop, characters, table) > max_upper_case * characters
            ):
                removed_lines[text] += 1
                removed_words[text] += words
                continue
            before = size
            if kept:
                result[size] = 0x0A
                size += 1
            begin = size
            size = copy_span(data, start, stop, result, size)
            if 0 < words <= max_phrase_words and find_phrases(result, begin, size, phrases):
                for phrase in order:
                    size = _cut_phrase(result, begin, size, phrases, phrase, where[phrase])
                if size - begin < stop - start:
                    left = count_words(result, begin, size, table)
                    removed_words[text] += words - left
                    if left == 0:
                        removed_lines[text] += 1
                        size = before
                        continue
            kept += 1
    result_offsets[len(line_offsets) - 1] = size
    return size


class LineModifiers(PerDocument[LineModifiersStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        config = self.config
        texts = Texts.of(documents.column("text"))
        lines = lines_of(texts)
        names = Phrases.of(COUNTED, ignore_case=True)
        phrases = Phrases.of(list(config.phrases), ignore_case=False)
        result = np.empty(texts.bytes, np.uint8)
        offsets = np.zeros(len(texts) + 1, np.int64)
        removed_lines, removed_words, all_words = np.zeros((3, len(texts)), np.int64)
        size = _modify(
            texts.data,
            lines.starts,
            lines.ends,
            lines.characters,
            lines.offsets,
            character_flags(),
            names,
            phrases,
            np.argsort(phrases.numbers),
            np.array([WHERE[where] for where in config.phrases.values()], np.int64)[phrases.numbers],
            config.max_upper_case,
            config.max_numeric,
            config.counters,
            config.min_words,
            config.max_phrase_words,
            result,
            offsets,
            removed_lines,
            removed_words,
            all_words,
        )
        return {
            "text": Texts(result[:size], offsets).column(),
            "_removed_lines": pyarrow.array(removed_lines),
            "_removed_word_share": pyarrow.array(per(removed_words, all_words)),
        }

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        share = numbers(columns, "_removed_word_share")
        return [at_most("words in removed lines", share, self.config.max_removed_words)]
