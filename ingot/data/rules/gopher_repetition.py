"""The repetition rules of Gopher: lines, paragraphs and n-grams of words that come again (Rae et al. 2021, A.1).

`counting: datatrove` (also FineWeb's)

    paragraphs    re.split(r"\\n{2,}", text.strip())         duplicates are occurrences after the first
    lines         re.split(r"\\n+", text)
    n-grams       see repeats.py                            all characters are over the length of the text

`counting: datamap` (DCLM's and OLMo 3's): paragraphs and lines that are not empty; every occurrence of what repeats
counts; characters are over those of all elements. A text without lines or paragraphs repeats entirely (share 1).
datamap-rs splits paragraphs at every "\\n\\n": the same wherever no more than two newlines follow each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow

from ingot.data.rules.config import GopherRepetitionStep
from ingot.data.rules.gopher_quality import per
from ingot.data.rules.repeats import ngram_characters, seen_before
from ingot.data.step import PerDocument, Rule, at_most, numbers
from ingot.data.text.lines import blocks_of, lines_of, paragraphs_of
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class GopherRepetition(PerDocument[GopherRepetitionStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = Texts.of(documents.column("text"))
        union = self.config.counting == "datamap"
        lines = lines_of(texts)
        length = lines.sums(lines.characters) + lines.per_text() - 1
        shares: dict[str, NDArray[Any]] = {"_gopher_characters": length}
        for name, elements in (
            ("paragraph", paragraphs_of(texts, words_of(texts))),
            ("line", blocks_of(lines)),
        ):
            if union:
                elements = elements.select(elements.characters > 0)
            count, characters = seen_before(elements, firsts_too=union)
            of = elements.sums(elements.characters) if union else length
            share, character_share = per(count, elements.per_text()), per(characters, of)
            if union:
                share[elements.per_text() == 0] = character_share[elements.per_text() == 0] = 1.0
            shares[f"_gopher_duplicate_{name}s"] = share
            shares[f"_gopher_duplicate_{name}_characters"] = character_share
        words = words_of(texts, self.config.words)
        of = words.sums(words.characters) if union else length
        sizes = [*self.config.top_ngrams, *self.config.duplicate_ngrams] or [1]
        top, duplicate = ngram_characters(words, max(sizes), union=union, shortest=min(sizes))
        shares |= {f"_gopher_top_{size}_gram": per(top[:, size], of) for size in self.config.top_ngrams}
        shares |= {
            f"_gopher_duplicate_{size}_grams": per(duplicate[:, size], of) for size in self.config.duplicate_ngrams
        }
        return {name: pyarrow.array(values) for name, values in shares.items()}

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        limits = self.config

        def share(rule: str, column: str, limit: float) -> Rule:
            return at_most(rule, numbers(columns, f"_gopher_{column}"), limit)

        return [
            Rule("empty text", numbers(columns, "_gopher_characters") == 0),
            share("duplicate paragraphs", "duplicate_paragraphs", limits.max_duplicate_paragraphs),
            share(
                "characters in duplicate paragraphs",
                "duplicate_paragraph_characters",
                limits.max_duplicate_paragraph_characters,
            ),
            share("duplicate lines", "duplicate_lines", limits.max_duplicate_lines),
            share("characters in duplicate lines", "duplicate_line_characters", limits.max_duplicate_line_characters),
            *(
                share(f"characters in the most frequent {size}-gram", f"top_{size}_gram", limit)
                for size, limit in sorted(limits.max_top_ngram_characters.items())
            ),
            *(
                share(f"characters in duplicate {size}-grams", f"duplicate_{size}_grams", limit)
                for size, limit in sorted(limits.max_duplicate_ngram_characters.items())
            ),
        ]
