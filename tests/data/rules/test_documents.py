"""Rules on whole documents: values by hand, and datatrove's own code where it has the rule."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.step import Step
from ingot.data.steps.bad_words import BadWordsStep
from ingot.data.steps.gopher_quality import GopherQualityStep
from ingot.data.steps.gopher_repetition import GopherRepetitionStep
from ingot.data.steps.length import LengthStep
from ingot.data.steps.pii import PiiStep
from ingot.data.steps.url_filter import UrlFilterStep
from ingot.workspace.errors import DataError
from tests.data.rules.outside import COMPRESSION_RATIO, MADLAD, example


def removed(step: Step, documents: list[str] | list[dict[str, str]]) -> list[str | None]:
    return apply(step, documents).column("removed_by").to_pylist()


def test_length() -> None:
    texts = ["é" * 149, "é" * 150, "é " * 80]
    assert removed(LengthStep(max_words=79), texts) == ["characters 149 < 150", None, "words 80 > 79"]


def test_published_thresholds() -> None:
    quality, repetition = GopherQualityStep(), GopherRepetitionStep()
    assert (quality.min_words, quality.max_words) == (50, 100_000)
    assert (quality.min_mean_word_length, quality.max_mean_word_length) == (3, 10)
    assert repetition.max_top_ngram_characters == {2: 0.20, 3: 0.18, 4: 0.16}
    assert list(repetition.max_duplicate_ngram_characters.values()) == [0.15, 0.14, 0.13, 0.12, 0.11, 0.10]


def test_thresholds_do_not_touch_the_columns() -> None:
    assert GopherQualityStep(min_words=7).annotation_key() == GopherQualityStep().annotation_key()
    assert GopherQualityStep(words="letters").annotation_key() != GopherQualityStep().annotation_key()


def test_stop_words_distinct_or_all() -> None:
    text = "the " * 60 + "cat"
    distinct, every = GopherQualityStep(), GopherQualityStep(count_stop_words="all")
    assert apply(distinct, [text]).column("_gopher_stop_words").to_pylist() == [1]
    assert apply(every, [text]).column("_gopher_stop_words").to_pylist() == [60]


SENTENCES = "It rained all day. We stayed at home! Who would not? The book was long. I read it twice. "


def test_madlad_sentences_and_list_case() -> None:
    assert removed(example(MADLAD), ["One. Two. Three. Four"]) == ["sentences 4 < 5"]
    title = "Home About Contact Products Services News Blog Careers Support Login Cart Help. "
    assert removed(example(MADLAD), [SENTENCES]) == [None]
    assert removed(example(MADLAD), [SENTENCES + title]) == [None]  # one of six
    assert removed(example(MADLAD), [SENTENCES[:-17] + title]) == ["questionable sentences 0.2 >= 0.2"]  # one of five
    eleven = title.replace("Home ", "")
    assert removed(example(MADLAD), [SENTENCES[:-17] + eleven]) == [None]


@pytest.mark.parametrize(
    ("sentence", "rules", "questionable"),
    [
        ("Please download the file. ", [2, 5], True),
        ("Please load the file. ", [2, 5], False),
        ("See h e l l o w o r l d there. ", [5], True),
        ("See h e l l o w o r. ", [5], False),
        ("The cat sat and the dog ran off but she won. ", [5], True),  # nine groups of three characters
        ("The cat sat and the dog ran off. ", [5], False),
        ("Too short. ", [3], True),
        ("This one is neither short nor very long. ", [3], False),
        ("f(x) = (1+2)/3 > {4} + 5. ", [4], True),
        ("We counted 12 sheep and 3 dogs on the farm. ", [4], False),
    ],
)
def test_madlad_rules(sentence: str, rules: list[int], questionable: bool) -> None:
    table = apply(example(MADLAD, rules=rules), [sentence])
    assert table.column("_madlad_questionable").to_pylist() == [float(questionable)]


@given(st.text(st.sampled_from("ab.!? \n\u3000é"), max_size=40))
def test_sentences_equal_a_regular_expression(text: str) -> None:
    expected = len([piece for piece in re.split(r"[.!?]+\s+", text) if piece.strip()])
    assert apply(example(MADLAD), [text]).column("_madlad_sentences").to_pylist() == [expected]


def test_compression_ratio_is_that_of_gzip() -> None:
    noise = "".join(random.Random(1).choices([chr(point) for point in range(0x4E00, 0x9FFF)], k=12_000))
    texts = ["short", "the same again " * 3000, SENTENCES * 20 + noise[:11_000], noise]
    table = apply(example(COMPRESSION_RATIO), texts)
    expected = [len(gzip.compress(text.encode(), 1)) / len(text.encode()) for text in texts]
    assert table.column("compression_ratio").to_pylist() == [None, *(pytest.approx(ratio) for ratio in expected[1:])]
    assert [bool(reason) for reason in table.column("removed_by").to_pylist()] == [False, True, True, True]


def test_bad_words_equal_the_expression_of_c4(shared_data: Path, real_documents: list[str]) -> None:
    path = shared_data / "lists" / "ldnoobw_en.txt"
    words = [re.escape(line.strip()) for line in path.read_text().splitlines() if line.strip()]
    expression = re.compile(rf"(?:\W|^)({'|'.join(words)})(?:\W|$)")
    texts = [*real_documents[::7], "What an ASS!", "class", "a-ss", "so Big\u00a0TITS", "a big tits b", "éass", "ass"]
    expected = [bool(expression.search(text.lower())) for text in texts]
    found = removed(BadWordsStep(file=str(path)), texts)
    assert [bool(reason) for reason in found] == expected
    assert 5 < sum(expected) < len(texts) - 5


def test_bad_words_keep_share_and_scripts(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# comment\nболван\nfool\n")
    assert [bool(reason) for reason in removed(BadWordsStep(file=str(path)), ["Ты БОЛВАН!", "fools", "a Fool"])] == [
        True,
        False,
        True,
    ]
    texts = [f"fool number {number}" for number in range(400)]
    kept = removed(BadWordsStep(file=str(path), keep_share=0.25), texts).count(None)
    assert 70 <= kept <= 130  # 100 expected, standard deviation 8.7
    path.write_text("馬鹿\n")
    assert removed(BadWordsStep(file=str(path), language="ja"), ["この馬鹿者"]) == ["bad words 1"]
    assert removed(BadWordsStep(file=str(path), language="en"), ["この馬鹿者"]) == [None]
    with pytest.raises(DataError, match="cannot read the list"):
        removed(BadWordsStep(file=str(tmp_path / "nowhere.txt")), ["text"])


def test_pii_equals_datatrove(real_documents: list[str]) -> None:
    formatters = pytest.importorskip("datatrove.pipeline.formatters.pii")
    odd = [
        "mail éjo@ex.org, x.y@a.b.co.uk; a@b, @b.c, a..b@c.de a@[127.0.0.1] \u3000<q@w.e>",
        "8.8.8.8 1.2.3.4.5.6.7.8 10.0.0.1 256.1.1.1 08.8.8.8 127.0.0.1:80 x8.8.4.4y 99.99.99.999",
        "a@1.2.3.4 a@b.c.d.e@f.gh root@8.8.8.8.",
        "",
    ]
    texts = [*odd, *real_documents]
    expected = [formatters.PIIFormatter().format(text) for text in texts]
    table = apply(PiiStep(), texts)
    assert table.column("text").to_pylist() == expected
    spans = table.column("_pii_spans").to_pylist()
    assert odd[1][spans[1][0] : spans[1][1]] == "8.8.8.8"
    assert table.column("_pii_emails")[0].as_py() == 4
    assert sum(text != other for text, other in zip(texts, expected, strict=True)) > 20


def test_pii_phones() -> None:
    texts = ["(212) 736-5000 or 212.736.5000", "2127365000", "+1 212-736-5000, 1999-2004", "12345678901234"]
    table = apply(PiiStep(phones=True), texts)
    assert table.column("_pii_phones").to_pylist() == [2, 1, 1, 0]
    assert table.column("text")[0].as_py() == "555-0100 or 555-0100"


def test_url_filter(tmp_path: Path) -> None:
    files = {
        "domains": "bad.org\n",
        "urls": "https://fine.org/not-this\n",
        "banned_words": "casino\n",
        "soft_banned_words": "cam\nlive\nwin\n",
        "banned_parts": "free-stuff\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    step = UrlFilterStep(**{name: [str(tmp_path / name)] for name in files})
    expected = {
        "https://www.Bad.org:8080/x": "listed url domain bad.org",
        "https://notbad.org/": None,
        "bad.org/page": "listed url domain bad.org",
        "https://fine.org/not-this": "listed url address",
        "https://fine.org/not-this-one": None,
        "https://fine.org/Casino/": "listed url word casino",
        "https://fine.org/casinos": None,
        "https://fine.org/cam-x": None,
        "https://fine.org/cam/live": "soft words in the url 2 >= 2",
        "https://fine.org/free_stuff": "listed url part freestuff",
        "": None,
    }
    documents = [{"text": "t", "url": url} for url in expected]
    assert removed(step, documents) == list(expected.values())
