"""Odd answers to IFEval's prompts, on which our scores are compared with the published program's (record_ifeval.py).

Some are asked of every prompt; others are made for a prompt's instructions: right, wrong by one, and right by the letter only.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.making.rows import read_rows

Row = dict[str, Any]
ROWS_OF_EACH = 2  # prompts for every kind of instruction
RANDOM_LETTER = 1129  # its letter is an exclamation mark, for which the published program draws another at random

EVERYWHERE = (
    "",
    " \n\t ",
    "\u00a0\u2003",
    "42",
    "🙂🚀",
    "...",
    "Sure!",
    "OK, HERE IT IS: NOTHING.",
    "# Title\n\n* one, *two*\n* **three**\n- four\n\nP.S. done.",
    "My answer is yes.\n******\nMy answer is no.",
    "```json\n{\"a\": [1, \"[b]\"]}\n```",
    "<<A title>>\n\n\"Quoted, with [one] and [two].\"",
    "Ein Satz auf Deutsch, der nicht besonders lang ist. Und noch einer!",
    "ಇದು ಕನ್ನಡದಲ್ಲಿ ಬರೆದ ಒಂದು ವಾಕ್ಯ. यह हिन्दी का एक वाक्य है।",
    "Sure, here it is:\n\nthe quiet harbour, early.\n\n*Hope this helps!*",
    "word, " * 700,
)  # fmt: skip
LANGUAGES = {
    "de": "Das Wetter ist heute schön, und wir gehen alle zusammen an den Strand.",
    "en": "The weather is fine today and all of us are going to the beach together.",
    "hi": "आज मौसम बहुत अच्छा है और हम सब समुद्र तट पर तैरने जा रहे हैं।",
    "kn": "ಇಂದು ಹವಾಮಾನ ಚೆನ್ನಾಗಿದೆ ಮತ್ತು ನಾವೆಲ್ಲರೂ ಒಟ್ಟಿಗೆ ಸಮುದ್ರತೀರಕ್ಕೆ ಹೋಗುತ್ತಿದ್ದೇವೆ.",
    "ru": "Сегодня хорошая погода, и мы все вместе идём на пляж купаться.",
    "pt": "O tempo está bom hoje e vamos todos juntos à praia para nadar um pouco.",
    "mixed": "Das Wetter ist schön. The weather is fine today and we go to the beach.",
}


def some_rows(data: Path) -> list[Row]:
    """Prompts of the published file, so many for every kind of instruction."""
    rows = read_rows(data / "ifeval" / "ifeval_dev.jsonl.gz")
    seen: Counter[str] = Counter()
    chosen = []
    for row in rows:
        if row["key"] == RANDOM_LETTER:
            continue
        if any(seen[id] < ROWS_OF_EACH for id in row["instruction_id_list"]):
            chosen.append(row)
            seen.update(row["instruction_id_list"])
    return chosen


def answers_of(row: Row) -> list[str]:
    """The answers to a prompt; those for its instructions also between a greeting and a farewell."""
    own = [
        answer
        for id, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True)
        for answer in MADE[id](**{name: value for name, value in kwargs.items() if value is not None})
    ]
    wrapped = [f"Sure, here you are!\n{answer}\n*Bye, then.*" for answer in own[:4]]
    return list(dict.fromkeys([*EVERYWHERE, *own, *wrapped]))


def answers_hash(rows: list[Row]) -> str:
    """Changes if an answer does: then the verdicts must be recorded again."""
    return hashlib.sha256(json.dumps([answers_of(row) for row in rows]).encode()).hexdigest()[:16]


def around(number: int) -> tuple[int, int, int]:
    return max(0, number - 1), number, number + 1


def existence(keywords: list[str]) -> list[str]:
    return [
        " and ".join(keywords).upper(),
        ", ".join(keywords[:-1]) + " only",
        "".join(keywords),
        " ".join(f"un{keyword}ly" for keyword in keywords),
        " ".join(f"**{keyword.title()}**" for keyword in keywords),
        " ".join(" ".join(keyword) for keyword in keywords),
    ]


def frequency(keyword: str, frequency: int, relation: str) -> list[str]:
    counted = [f"{keyword} ".swapcase() * count for count in around(frequency)]
    return [
        *counted,
        keyword * frequency,
        f"super{keyword}s, " * frequency,
        f"{keyword[:1]} {keyword[1:]} " * frequency,
    ]


def forbidden_words(forbidden_words: list[str]) -> list[str]:
    word = forbidden_words[-1]
    return [f"a {word.upper()}!", f"{word}ish", f"_{word}_", f"{word}-like", f"({word})", "none of them", f"the{word}"]


def letter_frequency(letter: str, let_frequency: int, let_relation: str) -> list[str]:
    return [*(letter * count for count in around(let_frequency)), f"{letter.upper()} " * let_frequency, "ⓐ ａ á"]


def response_language(language: str) -> list[str]:
    return [*LANGUAGES.values(), LANGUAGES.get(language, "x") * 3, "ok", "123 456", "!!!", "e", "http://a.b/c"]


def number_sentences(num_sentences: int, relation: str) -> list[str]:
    return [
        *("The cat sat down. " * count for count in around(num_sentences)),
        *("Did it work? " * count for count in around(num_sentences)),
        "Stop! " * num_sentences,
        "It rains\n" * num_sentences,
        "He said so (again). " * num_sentences,
        "It costs 3.50 in total. " * num_sentences,
        '"It is late." ' * num_sentences,
        "\n".join(f"{number}. An item." for number in range(num_sentences)),
    ]


def number_paragraphs(num_paragraphs: int) -> list[str]:
    parts = [f"Paragraph {number}, here." for number in range(num_paragraphs + 1)]
    return [
        *("\n***\n".join(parts[:count]) for count in around(num_paragraphs)),
        "***\n" + "***".join(parts[:num_paragraphs]) + "\n***",
        " *** *** ".join(parts[:num_paragraphs]),
        "\n\n".join(parts[:num_paragraphs]),
        "\n* * *\n".join(parts[:num_paragraphs]),
        "****".join(parts[:num_paragraphs]),
    ]


def number_words(num_words: int, relation: str) -> list[str]:
    return [
        *("word " * count for count in around(num_words)),
        "well-known " * (num_words // 2),
        "don't " * (num_words // 2),
        "— … ! " * num_words,
        "東京 " * num_words,
        "नमस्ते " * num_words,
        "a_b " * num_words,
    ]


def nth_paragraph(num_paragraphs: int, nth_paragraph: int, first_word: str) -> list[str]:
    def text(count: int, begin: str, between: str = "\n\n") -> str:
        return between.join(begin if place == nth_paragraph - 1 else f"Part {place}, then." for place in range(count))

    return [
        *(text(count, f"{first_word} and so on.") for count in around(num_paragraphs)),
        text(num_paragraphs, f'"{first_word.upper()}," it began.'),
        text(num_paragraphs, f"'\"{first_word}\"' began."),
        text(num_paragraphs, f"\"'{first_word}'\" began."),
        text(num_paragraphs, f"**{first_word}** in bold."),
        text(num_paragraphs, f"{first_word}. That is it."),
        text(num_paragraphs, f"{first_word}s too many."),
        text(num_paragraphs, f"{first_word} here.", "\n\n\n\n"),
        text(num_paragraphs, f"{first_word} here.", "\n\n\n"),
        text(num_paragraphs, f"{first_word} here.", "\n \n"),
        "\n\n" + text(num_paragraphs, f"{first_word} here."),
        text(num_paragraphs, f"{first_word} here.") + "\n\n\n\n",
    ]


def number_placeholders(num_placeholders: int) -> list[str]:
    return [
        *("[name], " * count for count in around(num_placeholders)),
        "[]" * num_placeholders,
        "[a\nb]" * num_placeholders,
        "[" * num_placeholders + "x" + "]" * num_placeholders,
        "(name) {name} <name> " * num_placeholders,
        "[x](http://y) " * num_placeholders,
    ]


def postscript(postscript_marker: str) -> list[str]:
    mark = postscript_marker
    forms = [mark, mark.lower(), mark.replace(".", ". "), mark.replace(".", ""), mark.replace(".", ".\n")]
    return [*(f"Dear all, thanks.\n\n{form} one more thing" for form in forms), f"See the {mark} below", "PS: hello"]


def number_bullet_lists(num_bullets: int) -> list[str]:
    return [
        *("* point, here\n" * count for count in around(num_bullets)),
        "- point\n" * num_bullets,
        "   * point\n" * num_bullets,
        "*point*\n" * num_bullets,
        "** point\n" * num_bullets,
        "• point\n+ point\n" * num_bullets,
        "*\npoint\n" * num_bullets,
        "-\n" * num_bullets,
        "--- \n" + "* point\n" * num_bullets,
        "1. point\n  - below\n" * num_bullets,
        "\r\n".join(["* point"] * num_bullets),
    ]


def constrained_response() -> list[str]:
    return [
        "My answer is maybe.",
        "my answer is maybe.",
        "My answer is yes",
        "I say: My answer is no. Truly.",
        "**My answer is no.**",
        "My answer\nis no.",
        "My  answer is yes.",
    ]


def number_highlighted_sections(num_highlights: int) -> list[str]:
    return [
        *("*part* and " * count for count in around(num_highlights)),
        "**part** " * num_highlights,
        "***part*** " * num_highlights,
        "* * " * num_highlights,
        "**** " * num_highlights,
        "*a\nb* " * num_highlights,
        "_part_ " * num_highlights,
        "* point\n" * (num_highlights + 1),
        "*part" * (num_highlights + 1),
    ]


def multiple_sections(section_spliter: str, num_sections: int) -> list[str]:
    def text(form: str, count: int = num_sections) -> str:
        return "".join(form.format(section_spliter, number + 1) + "\nSome text.\n" for number in range(count))

    return [
        *(text("{} {}", count) for count in around(num_sections)),
        text("{}{}"),
        text("**{} {}:**"),
        text("{}  {}"),
        text("{} {}").lower(),
        text("{} {}").upper(),
        f"{section_spliter} one\n" * num_sections,
        f"{section_spliter} I\n" * num_sections,
        f"{section_spliter} 1 " * num_sections,
    ]


def json_format() -> list[str]:
    return [
        '{"a": 1}',
        '```json\n{"a": 1}\n```',
        '```JSON\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        '```python\n{"a": 1}\n```',
        'Here it is:\n```json\n{"a": 1}\n```',
        "{'a': 1}",
        '{"a": 1,}',
        "[1, 2",
        '"text"',
        "NaN",
        "{}{}",
        '```json```json{"a": 1}```',
        '{"a": "é\\u00e9"}',
    ]


def title() -> list[str]:
    return [
        "<<poem of joy>>",
        "<<>>",
        "<< >>",
        "<<a\nb>>",
        "<a>",
        "«a»",
        "x <<a>> y",
        "<<<a>>>",
        "<<<<>>>>",
        "<<a>",
        ">>a<<",
    ]


def two_responses() -> list[str]:
    return [
        "One.\n******\nTwo.",
        "One. ****** One.",
        "******\nOne.\n******\nTwo.\n******",
        "One.\n******\n******\nTwo.",
        "One.\n*****\nTwo.",
        "One.\n*******\nTwo.",
        "One.******Two.******Three.",
        "One.\n************\nTwo.",
        "Response 1\n\n******\n\nResponse 2, longer",
    ]


def repeat_prompt(prompt_to_repeat: str) -> list[str]:
    return [
        prompt_to_repeat + "\n\nHere, then.",
        prompt_to_repeat.upper(),
        f" \n{prompt_to_repeat}",
        f'"{prompt_to_repeat}"',
        prompt_to_repeat[:-1],
        prompt_to_repeat.replace(" ", "  "),
        f"Sure.\n{prompt_to_repeat}",
        f"**{prompt_to_repeat}**",
    ]


def end_checker(end_phrase: str) -> list[str]:
    return [
        f"Well. {end_phrase}",
        f"Well. {end_phrase.upper()}",
        f'"Well, {end_phrase}"',
        f"Well. {end_phrase}\n\n",
        f"Well. {end_phrase} Bye.",
        f"Well. {end_phrase}*",
        end_phrase[:-1],
        f"{end_phrase}\nThat is all",
    ]


def quotation() -> list[str]:
    return ['"x"', '"', '""', "'x'", "“x”", ' "a, b" ', '"a" and "b"', '**"a"**', '"a".', 'so: "a"']


def capital_word_frequency(capital_frequency: int, capital_relation: str) -> list[str]:
    return [
        *("STOP it now. " * count for count in around(capital_frequency)),
        "A " * capital_frequency,
        "WELL-KNOWN " * capital_frequency,
        "DON'T " * capital_frequency,
        "U.S. " * capital_frequency,
        "ÜBER, " * capital_frequency,
        "**NOTE:** " * capital_frequency,
        "R2D2 " * capital_frequency,
        "YES/NO " * capital_frequency,
        "A,B " * capital_frequency,
        "YES.NO " * capital_frequency,
        "(YES) [NO] " * capital_frequency,
        "I'm " * capital_frequency,
        "東京 " * capital_frequency,
    ]


def english_capital() -> list[str]:
    english = LANGUAGES["en"]
    return [
        english.upper(),
        english.upper().replace("TODAY", "TODAy"),
        LANGUAGES["de"].upper(),
        LANGUAGES["ru"].upper(),
        f"THE RESULT IS 42, AND {english.upper()}",
        "OK",
        "NO!",
        f"# {english.upper()}\n\nok",
    ]


def english_lowercase() -> list[str]:
    english = LANGUAGES["en"]
    return [
        english.lower(),
        english,
        LANGUAGES["de"].lower(),
        LANGUAGES["hi"],
        f"42 is it, and {english.lower()}",
        "ok",
        "what a day!",
        f"Sure\n{english.lower()}",
    ]


def no_comma() -> list[str]:
    return ["No comma here.", "One, two", "1,000", "one، two、three，four", "Sure, so:\nfine\nbye, all", "a;b"]


MADE: dict[str, Callable[..., list[str]]] = {
    "keywords:existence": existence,
    "keywords:frequency": frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}
