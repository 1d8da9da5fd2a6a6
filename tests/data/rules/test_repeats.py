"""N-gram shares and duplicates against counting with Python dictionaries."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.steps.gopher_repetition import GopherRepetitionStep
from ingot.data.steps.repeated_ngrams import RepeatedNgramsStep
from ingot.data.text.lines import lines_of
from ingot.data.text.repeats import ngram_characters, seen_before
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of

LONGEST = 6
WORDS = st.lists(st.sampled_from(["a", "ab", "b", "ba", "é", "ééé"]), max_size=60)
TEXTS = st.lists(WORDS, min_size=1, max_size=4)


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]


def top_as_datatrove(words: list[str], n: int) -> int:
    counts = Counter(ngrams(words, n))
    if not counts:
        return 0
    ngram, count = counts.most_common(1)[0]
    return len(" ".join(ngram)) * count


def duplicate_as_datatrove(words: list[str], n: int) -> int:
    seen, characters, at = set(), 0, 0
    while at < len(words) - n + 1:
        ngram = tuple(words[at : at + n])
        if ngram in seen:
            characters += len("".join(ngram))
            at += n
        else:
            seen.add(ngram)
            at += 1
    return characters


def covered(words: list[str], n: int, starts: list[int]) -> int:
    places = {place for start in starts for place in range(start, start + n)}
    return sum(len(words[place]) for place in places)


@given(TEXTS)
def test_ngrams_as_datatrove_counts(texts: list[list[str]]) -> None:
    top, duplicate = ngram_characters(words_of(Texts.of([" ".join(words) for words in texts])), LONGEST, union=False)
    for text, words in enumerate(texts):
        for n in range(1, LONGEST + 1):
            assert top[text, n] == top_as_datatrove(words, n)
            assert duplicate[text, n] == duplicate_as_datatrove(words, n)


@given(TEXTS)
def test_ngrams_as_datamap_counts(texts: list[list[str]]) -> None:
    top, duplicate = ngram_characters(words_of(Texts.of([" ".join(words) for words in texts])), LONGEST, union=True)
    for text, words in enumerate(texts):
        for n in range(1, LONGEST + 1):
            grams = ngrams(words, n)
            counts = Counter(grams)
            repeated = [start for start, gram in enumerate(grams) if counts[gram] > 1]
            assert duplicate[text, n] == covered(words, n, repeated)
            ranked = {(counts[gram], len("".join(gram))) for gram in grams if counts[gram] > 1}
            best = max(ranked, default=None)
            choices = {
                covered(words, n, [start for start, other in enumerate(grams) if other == gram])
                for gram in grams
                if (counts[gram], len("".join(gram))) == best
            }
            assert top[text, n] in (choices or {0})


@given(
    st.lists(st.lists(st.sampled_from(["", "one", "two two", "ö"]), min_size=1, max_size=12), min_size=1, max_size=4)
)
def test_lines_seen_before(texts: list[list[str]]) -> None:
    lines = lines_of(Texts.of(["\n".join(text) for text in texts]))
    later, with_firsts = seen_before(lines), seen_before(lines, firsts_too=True)
    for number, text in enumerate(texts):
        seen_again = [line for place, line in enumerate(text) if line in text[:place]]
        assert (later[0][number], later[1][number]) == (len(seen_again), len("".join(seen_again)))
        all_of_them = [line for line in text if text.count(line) > 1]
        assert (with_firsts[0][number], with_firsts[1][number]) == (len(all_of_them), len("".join(all_of_them)))


@given(WORDS)
def test_repetitions_in_a_row(words: list[str]) -> None:
    best = 1 if words else 0
    for size in range(1, 6):
        for start in range(len(words)):
            count = 1
            while words[start : start + size] == words[start + count * size : start + (count + 1) * size] != []:
                count += 1
            if start + size <= len(words):
                best = max(best, count)
    table = apply(RepeatedNgramsStep(longest_ngram=5), [" ".join(words)])
    assert table.column("_repetitions").to_pylist() == [best]


def test_32_repetitions_are_too_many() -> None:
    texts = ["so it goes on and on " + "ha ha ho " * 31, "so it goes on and on " + "ha ha ho " * 32]
    assert apply(RepeatedNgramsStep(), texts).column("removed_by").to_pylist() == [
        None,
        "repetitions in a row 32 >= 32",
    ]


def test_datamap_counts_first_occurrences_too() -> None:
    text = "alpha beta\ngamma delta\nalpha beta"
    shares = {
        counting: apply(GopherRepetitionStep(counting=counting), [text]).column("_gopher_duplicate_lines")[0].as_py()
        for counting in ("datatrove", "datamap")
    }
    assert shares == {"datatrove": pytest.approx(1 / 3), "datamap": pytest.approx(2 / 3)}
    of_words = apply(GopherRepetitionStep(counting="datamap"), [text]).column("_gopher_top_2_gram")[0].as_py()
    assert of_words == pytest.approx(2 * 9 / 28)  # "alpha" and "beta" twice, of all letters
