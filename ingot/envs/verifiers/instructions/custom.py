"""IFBench's family `custom`: whole prompts of their own, with answers that a rule can check."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from datetime import date
from itertools import pairwise
from string import ascii_lowercase

from ingot.envs.verifiers.instructions.instruction import instruction
from ingot.envs.verifiers.text.words import OUTER, sentences, words

_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPECIAL = re.compile(r"[^\w\s]")
_AFRICAN_COUNTRIES = 52  # Zimbabwe and those before it; lists of 53 to 55 are in use, IFBench asks for 52
_CAPITALS = (  # European capitals north of 45 degrees, from the north; IFBench's own list has no Kyiv
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, "
    "London, Brussels, Kyiv, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chisinau, Bern, Ljubljana, Zagreb"
)


@instruction("custom:multiples")
def multiples(answer: str) -> bool:
    """The multiples of 7 from 10 to 50, and no other number."""
    return re.findall(r"\d+", answer) == [str(number) for number in range(14, 51, 7)]


@instruction("custom:mcq_count_length")
def mcq_count_length(answer: str) -> bool:
    """Four questions with five options each, every question longer than the one before, and nothing before the first."""
    if not answer.startswith("Question"):
        return False
    questions = [part.strip().split("\n") for part in _QUESTION.split(answer) if part.strip()]
    lengths = []
    for lines in questions:
        options = [number for number, line in enumerate(lines) if _OPTION.match(line.strip())]
        if len(options) != 5:
            return False
        lengths.append(len(" ".join(line.strip() for line in lines[: options[0]]).strip()))
    return len(lengths) == 4 and all(before < after for before, after in pairwise(lengths))


@instruction("custom:reverse_newline")
def reverse_newline(answer: str) -> bool:
    """From Zimbabwe on, enough lines for the countries of Africa, in reverse alphabetical order without accents."""
    lines = [plain for line in answer.split("\n") if (plain := _plain(line.strip(OUTER)))]
    start = next((number for number, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = lines[start:]
    return len(countries) >= _AFRICAN_COUNTRIES and countries == sorted(countries, reverse=True)


@instruction("custom:word_reverse")
def word_reverse(answer: str) -> bool:
    """A sentence about the bald eagle with its words in reverse order."""
    return ("eagle", "bald") in pairwise(words(answer.lower()))


@instruction("custom:character_reverse")
def character_reverse(answer: str) -> bool:
    """A sentence about the bald eagle with its letters in reverse order."""
    return "bald eagle"[::-1] in answer.lower()


@instruction("custom:sentence_alphabet")
def sentence_alphabet(answer: str) -> bool:
    """Twenty-six sentences whose first letters are the alphabet."""
    return [sentence.lower().lstrip(OUTER)[:1] for sentence in sentences(answer)] == list(ascii_lowercase)


@instruction("custom:european_capitals_sort")
def european_capitals_sort(answer: str) -> bool:
    """The capitals of Europe north of 45 degrees from north to south, with commas between them."""
    given = [city.strip() for city in _plain(answer).replace("Kiev", "Kyiv").split(",")]
    return ", ".join(filter(None, given)) == _CAPITALS


@instruction("custom:csv_city")
def csv_city(answer: str) -> bool:
    """Seven rows under the header ID, Country, City, Year, Count."""
    rows = _rows(answer, ",")
    return len(rows) == 8 and rows[0] == ["ID", "Country", "City", "Year", "Count"] and all(len(r) == 5 for r in rows)


@instruction("custom:csv_special_character")
def csv_special_character(answer: str) -> bool:
    """Fourteen rows of products, one field of them in quotes with a special character inside."""
    rows = _rows(_with_quotes(answer), ",")
    header = [name.strip(' "\t') for name in rows[0]] if rows else []
    return (
        len(rows) == 15
        and header == ["ProductID", "Category", "Brand", "Price", "Stock"]
        and all(len(row) == 5 for row in rows)
        and any(_quotes_special(field) for row in rows[1:] for field in row)
    )


@instruction("custom:csv_quotes")
def csv_quotes(answer: str) -> bool:
    """Three rows of grades with tabs between the fields, all of them in quotes."""
    rows = [[field.strip() for field in row] for row in _rows(_with_quotes(answer), "\t")]
    header = [name.strip('"') for name in rows[0]] if rows else []
    return (
        len(rows) == 4
        and header == ["StudentID", "Subject", "Grade", "Semester", "Score"]
        and all(len(row) == 5 for row in rows)
        and all(len(field) > 1 and field[0] == field[-1] == '"' for row in rows for field in row)
    )


@instruction("custom:date_format_list")
def date_format_list(answer: str) -> bool:
    """Days of Napoleon's life as YYYY-MM-DD, with commas between them."""
    return all(map(_napoleonic, answer.strip().split(",")))


def _napoleonic(text: str) -> bool:
    text = text.strip()
    if not _DATE.fullmatch(text):
        return False
    try:
        return 1769 <= date.fromisoformat(text).year <= 1821
    except ValueError:  # no such day
        return False


def _quotes_special(field: str) -> bool:
    """Whether the field, with its quotes, has a special character between them."""
    return field.startswith('"') and _SPECIAL.search(field[1 : field.rfind('"')]) is not None


def _with_quotes(answer: str) -> str:
    """CSV whose quotes are tripled, so that a reader keeps one pair of them around the field."""
    return answer.replace('"', '"""')


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """The rows of CSV text; none if it cannot be read."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _plain(text: str) -> str:
    """Without accents, and without characters that are not ASCII: São Tomé is Sao Tome."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
