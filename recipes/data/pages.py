"""Writes a made-up crawl of 37 pages to try the recipes of this folder on: each is named after the rule that it was made for.

    python recipes/data/pages.py          # pages/ in the working directory: a WARC file, lists, an eval, two small classifiers

Most pages are articles that every recipe keeps. The others have one fault each.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path

from ingot.cli.classifier import classifier_app

WORDS = {
    "gardens": "soil seed hedge root frost compost spade orchard blossom pruning mulch greenhouse petal stem bulb trellis meadow",
    "bridges": "arch span cable girder tower river steel rivet load beam deck anchor pier ferry toll engineer concrete",
    "kitchens": "flour oven yeast crust butter kettle simmer spice recipe onion broth dough skillet pepper pastry salt supper",
}
PLACES = [
    "Ashford",
    "Brindle",
    "Corrie",
    "Dunmore",
    "Elswick",
    "Fenwick",
    "Garston",
    "Harlow",
    "Ivybridge",
    "Jarrow",
    "Kelso",
    "Lindale",
    "Morpeth",
    "Norwell",
]
VERBS = [
    "carried",
    "measured",
    "repaired",
    "gathered",
    "described",
    "painted",
    "compared",
    "finished",
    "examined",
    "protected",
    "replaced",
    "remembered",
]
KINDS = [
    "old",
    "narrow",
    "patient",
    "bright",
    "heavy",
    "quiet",
    "ordinary",
    "careful",
    "wooden",
    "early",
    "familiar",
    "northern",
    "slow",
    "generous",
    "local",
]
PEOPLE = [
    "neighbours",
    "teachers",
    "students",
    "visitors",
    "builders",
    "farmers",
    "cooks",
    "sailors",
    "children",
    "writers",
    "painters",
]
SENTENCES = (  # at most four words between two slots: what two articles share is short
    "In {place} the {kind} {word} was something that {people} {verb} with the {other}.",
    "Some of the {people} have {verb} a {kind} {word} because the {other} of {place} was old.",
    "When a {word} had been {verb} by {people}, this {other} made {place} a {kind} town.",
    "There is a {kind} way to {place}: past the {word} that {people} {verb} without any {other}.",
    "Nobody would say {place} needs a {kind} {word}, but {people} {verb} their {other} all the same.",
    "They {verb} one {other} after another, and to {people} in {place} each {word} seemed {kind} enough.",
    "What {people} {verb} that year was the {kind} {other} with a {word} from {place}.",
    "It may be that {place} has its own {word}, as {kind} as any {other} which {people} {verb} before.",
    "A letter of {people} from {place} tells how a {kind} {other} and its {word} were {verb}.",
    "Every {word} has a {other}; the {people} whom {place} sent {verb} both with {kind} hands.",
    "Once {people} had {verb} the {word}, only {place} kept a {kind} {other} for later.",
    "Then came {people} who {verb} less than {place} had hoped: no {word}, and hardly a {kind} {other}.",
    "By autumn this {other} was {verb}, and the {kind} {word} of {place} belonged to {people} again.",
    "If you ask {people} in {place}, they have always {verb} a {word} beside some {kind} {other}.",
    "Between {place} and the sea, {people} {verb} what {kind} {word} they found, or made a {other}.",
    "Two of these {people} {verb} it twice: first for {place}, with a {kind} {other}, next for a {word}.",
    "Without the {other}, {place} would be {kind}; so {people} {verb} every {word} they could.",
    "Last of all, {people} {verb} a {word} that was to {place} what a {kind} {other} is to others.",
)
BOILERPLATE = (
    "This page is part of the county archive, which was begun by volunteers who wanted to keep what the older people knew "
    "before it was forgotten. Everything here may be read and copied by schools, libraries and anyone who is curious, and "
    "we ask only that the name of the archive is mentioned where that is possible. If you have letters, drawings or "
    "recordings that belong in this collection, the reading room is open on Tuesday and on Thursday afternoon, and the "
    "staff will be glad to show you how such things are described, stored and made available to others in the future."
)
QUESTION = (
    "A lighthouse keeper in the village of Corrie polishes fourteen brass lamps every morning and seven more on Sundays; "
    "how many lamps does the keeper polish in three full weeks, if one of the Sundays is a holiday?"
)
ANSWER = "The keeper polishes three hundred and eight lamps"


def article(topic: str, seed: int, sentences: int = 14) -> list[str]:
    """Sentences of an article that no other article has."""
    pick = random.Random(f"{topic} {seed}")
    words = WORDS[topic].split()
    found: list[str] = []
    forms = pick.sample(SENTENCES, len(SENTENCES)) * 2
    for form in forms[:sentences]:
        word, other = pick.sample(words, 2)
        slots = {"kind": KINDS, "place": PLACES, "verb": VERBS, "people": PEOPLE}
        found.append(form.format(word=word, other=other, **{name: pick.choice(each) for name, each in slots.items()}))
    return found


def paragraphs(sentences: list[str], size: int = 3) -> list[str]:
    """The sentences in paragraphs."""
    return [" ".join(sentences[start : start + size]) for start in range(0, len(sentences), size)]


def pages() -> dict[str, tuple[str, str, list[str]]]:
    """By name: host, date, and the paragraphs of the page."""
    found: dict[str, tuple[str, str, list[str]]] = {}

    def add(name: str, texts: list[str], host: str = "example.org", date: str = "2024-03-01") -> None:
        found[name] = (host, date, texts)

    topics = list(WORDS)
    for number in range(15):
        add(f"article-{number}", paragraphs(article(topics[number % 3], number)))
    for number in range(3):
        add(f"boilerplate-{number}", [*paragraphs(article(topics[number], 50 + number)), BOILERPLATE])
    add(
        "personal",
        [
            *paragraphs(article("gardens", 60)),
            "Write to ann.miller@gardens.net about it, or visit the host 8.8.8.8 today.",
        ],
    )
    add("policy", [*paragraphs(article("bridges", 61, 16)), "Our privacy policy says how cookies are used here."])
    add("likes", [*paragraphs(article("kitchens", 62, 20)), "1,204 likes"])
    add("copy-first", paragraphs(article("bridges", 63)), date="2024-01-01")
    add("copy-again", paragraphs(article("bridges", 63)), date="2024-02-01")
    near = article("kitchens", 64, 24)
    add("near-old", paragraphs(near), date="2024-01-01")
    add("near-new", paragraphs([*near, "That was all they said."]), date="2024-02-01")
    add("leak", [*paragraphs(article("bridges", 65)), f"{QUESTION} {ANSWER}."])
    add("listed-host", paragraphs(article("gardens", 66)), host="www.listed.example")
    add("winning-casino-bonus", paragraphs(article("gardens", 67)))
    add("free-poker", paragraphs(article("gardens", 68)))
    door = "La casa del pueblo tiene una puerta de madera que los vecinos pintaron el verano pasado con mucho cuidado. "
    river = "El puente sobre el río fue construido hace cien años por los ingenieros de la ciudad, que vivían aquí. "
    add("spanish", [door * 2, river * 3])
    add("short", ["A page with hardly a word on it.", "It is of no use."])
    verse = " ".join(article("bridges", 74)).split()
    add("verse", ["\n".join(" ".join(verse[start : start + 4]) for start in range(0, len(verse), 4))])
    add(
        "again",
        [
            *paragraphs(article("gardens", 69, 3)),
            *["The same line stands here again and again for the readers of this page."] * 12,
        ],
    )
    add(
        "placeholder",
        [*paragraphs(article("kitchens", 70)), "Here will be a text, lorem ipsum and so on, when it is ready for you."],
    )
    loud = "BUY THE BEST BRIDGES AND TOWERS IN THE WHOLE COUNTY NOW FROM US"
    add("shouting", [*paragraphs(article("bridges", 71, 8)), loud])
    add(
        "downloads",
        [
            *paragraphs(article("gardens", 72, 8)),
            "Press here to Download the mp3 of the talk. Facebook has it as well. Download it for the Episode of the week. "
            "There is an mp3 of it too.",
        ],
    )
    add(
        "advert",
        paragraphs(
            [s.replace("nobody", "every buyer").replace("the", "the cheap discount") for s in article("kitchens", 73)]
        ),
    )
    return found


def html(name: str, texts: list[str]) -> str:
    """A page with a menu around its article."""
    body = "".join("<p>" + "<br>".join(text.split("\n")) + "</p>" for text in texts)
    menu = "".join(f"<li><a href='/{each}'>{each}</a></li>" for each in ("home", "about", "contact"))
    return f"<html><head><title>{name}</title></head><body><nav><ul>{menu}</ul></nav><article>{body}</article></body></html>"


def identity(name: str) -> str:
    """The id of the page of this name, which its document has, too."""
    return f"00000000-0000-4000-8000-{random.Random(name).randrange(16**12):012x}"


def record(name: str, host: str, date: str, texts: list[str]) -> bytes:
    """A WARC record with the answer of a server."""
    content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html(name, texts).encode()
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{identity(name)}>\r\n"
        f"WARC-Target-URI: https://{host}/{name}\r\n"
        f"WARC-Date: {date}T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + content + b"\r\n\r\n", mtime=0)


LISTS = {  # datatrove's and DCLM's repositories have the real ones
    "domains": "listed.example",
    "urls": "https://example.org/not-there",
    "banned_words": "casino\ndiscount",
    "soft_banned_words": "free\npoker",
    "banned_parts": "notapart",
}


def classifier(folder: Path, name: str, rows: list[tuple[str, str]]) -> None:
    """Train a small classifier as `ingot classifier train` does."""
    path = folder / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows), encoding="utf-8"
    )
    sizes = ["--dimension", "8", "--buckets", "5000", "--epochs", "50", "--learning-rate", "0.5", "--held-out", "0"]
    classifier_app(["train", "--labelled", str(path), "--out", str(folder / name), *sizes], standalone_mode=False)


def main(folder: Path = Path("pages")) -> None:
    """Everything that the recipes read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "crawl.warc.gz").write_bytes(b"".join(record(name, *each) for name, each in pages().items()))
    for name, entries in LISTS.items():
        (folder / f"{name}.txt").write_text(entries + "\n", encoding="utf-8")
    (folder / "evals.jsonl").write_text(
        json.dumps({"id": "lamps", "question": QUESTION, "answer": ANSWER})
        + "\n"
        + json.dumps({"id": "other", "question": " ".join(article("gardens", 900, 3)), "answer": "No one did"})
        + "\n",
        encoding="utf-8",
    )
    articles = [(topic, article(topic, 100 + number)) for number in range(12) for topic in WORDS]
    classifier(folder, "topics", [(" ".join(each), topic) for topic, each in articles])
    adverts = [(" ".join(each).replace("the", "the cheap discount"), "negative") for _, each in articles]
    classifier(folder, "quality", [(" ".join(each), "positive") for _, each in articles] + adverts)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
