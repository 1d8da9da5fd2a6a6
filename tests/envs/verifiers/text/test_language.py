"""The language of a text, against real texts in many languages."""

from __future__ import annotations

from pathlib import Path

from ingot.envs.verifiers.text.language import detect_language, in_language
from ingot.envs.verifiers.text.words import word_set
from tests.making.rows import read_rows


def test_languages_of_the_declaration_of_human_rights(shared_data: Path) -> None:
    rows = read_rows(shared_data / "udhr" / "udhr.jsonl.gz")
    wanted = word_set("en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi")
    texts = {row["bcp47"]: row["text"] for row in rows if row["bcp47"] in wanted}
    assert len(texts) >= 25
    wrong = [code for code, text in texts.items() if not in_language(text[:1500], code)]
    assert wrong == []


def test_what_is_no_language() -> None:
    assert detect_language("12 + 30 = 42") == (None, 0.0)
    assert not in_language("12 + 30 = 42", "en")


def test_the_certainty_is_a_probability() -> None:
    clear = detect_language("Zuerst addiere ich die beiden Zahlen und halbiere dann.")
    assert clear[0] == "de" and 0.5 < clear[1] <= 1
