"""Tasks over long documents: how often words occur (counted by a program), and scenes made of all mentions of a word.

Words and phrases are picked by tf-idf among those whose count is in range: tf(w) · ln(N / df(w)), N sections. Both tasks
need the whole text at once, which is what long-context training lacks (OLMo 3, arXiv 2512.13961, section on long context).

Invariant: the answer of a counting question is the number of whole-word, case-blind occurrences; it is counted a second time,
in another way, before the sample is accepted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from ingot.data.synthesize.config import CountTask, VignettesTask
from ingot.data.synthesize.rewrite import cleaned
from ingot.data.synthesize.sample import Passage, Refused, Request, sentences

WORD = re.compile(r"[^\W\d_]+")
SHORTEST_WORD = 4


def words_of(text: str) -> list[str]:
    """Runs of letters, case-blind."""
    return [word.casefold() for word in WORD.findall(text)]


class Frequencies:
    """In how many sections each word stands."""

    def __init__(self) -> None:
        self.sections = 0
        self.counts: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> None:
        """Count some sections."""
        for text in texts:
            self.sections += 1
            self.counts.update(set(words_of(text)))

    def telling(self, text: str, lowest: int, highest: int) -> list[str]:
        """Words that stand `lowest` to `highest` times in the text, the most telling first."""
        found = Counter(words_of(text))
        scores = {
            word: count * math.log((1 + self.sections) / self.counts[word])
            for word, count in found.items()
            if lowest <= count <= highest and len(word) >= SHORTEST_WORD and self.counts[word]
        }
        return sorted(scores, key=lambda word: (-scores[word], word))


def count(task: CountTask, passage: Passage, frequencies: Frequencies) -> list[Request]:
    """One question about several words of a section; none if it has too few that are often enough."""
    chosen = frequencies.telling(passage.text, task.min_count, task.max_count)[: task.words]
    if len(chosen) < task.words:
        return []
    chosen.sort(key=lambda word: blake2b(f"{passage.id} {word}".encode(), digest_size=8).digest())
    counts = Counter(words_of(passage.text))
    pair = sorted(chosen[:2])
    most = max(chosen, key=lambda word: (counts[word], word))
    if sum(counts[word] == counts[most] for word in chosen) > 1:
        return []  # two answers to one question
    listed = ", ".join(chosen)
    question = (
        f"How often does each of these words stand in the text above (whole words, capitals or not): {listed}? Which one "
        f"is the most frequent, and how often do “{pair[0]}” and “{pair[1]}” stand in it together?"
    )
    answer = "\n".join(f"{word}: {counts[word]}" for word in chosen)
    answer += f"\nMost frequent: {most}\n{pair[0]} and {pair[1]} together: {counts[pair[0]] + counts[pair[1]]}"
    facts = {"counts": {word: counts[word] for word in chosen}, "most": most, "pair": pair, "answer": answer}
    return [Request("count", passage, question, facts=facts)]


def check_count(request: Request) -> str:
    """The document of a counting question: text, question, answer. Counts again with one search a word."""
    for word, number in request.facts["counts"].items():
        again = len(re.findall(rf"(?<![^\W\d_]){re.escape(word)}(?![^\W\d_])", request.passage.text.casefold()))
        if again != number:
            raise Refused("counts disagree")
    return f"{request.passage.text}\n\n{request.prompt}\n\n{request.facts['answer']}"


def vignettes(task: VignettesTask, passage: Passage, frequencies: Frequencies) -> list[Request]:
    """One request about the most telling word with enough sentences around it."""
    every = sentences(passage.text)
    for word in frequencies.telling(passage.text, task.snippets, 10**9):
        around = [sentence for sentence in every if word in words_of(sentence)]
        if len(around) < task.snippets:
            continue
        step = len(around) / task.snippets  # from the whole of the text, not its first page
        snippets = [around[int(number * step)] for number in range(task.snippets)]
        listed = "\n".join(f"{number}. {snippet}" for number, snippet in enumerate(snippets, 1))
        prompt = (
            f"These sentences from one long text are all about “{word}”:\n\n{listed}\n\nWrite a few short scenes (a "
            "conversation, a letter, a report: your choice) that together take up what every one of the sentences says about "
            f"“{word}”. Invent nothing that contradicts them. Write only the scenes."
        )
        return [Request("vignettes", passage, prompt, facts={"word": word, "snippets": snippets})]
    return []


def check_vignettes(task: VignettesTask, request: Request, answer: str) -> str:
    """The long text followed by the scenes, if these hold the word and enough of the sentences."""
    text = cleaned(answer)
    words = set(words_of(text))
    word = request.facts["word"]
    if word not in words:
        raise Refused("word missing")
    used = 0
    for snippet in request.facts["snippets"]:
        content = {each for each in words_of(snippet) if len(each) >= SHORTEST_WORD} - {word}
        used += not content or len(content & words) >= max(1, len(content) // 3)
    if used < task.min_snippets_used:
        raise Refused("sentences left out")
    task_text = f"Write scenes that take up everything the text above says about “{word}”."
    return f"{request.passage.text}\n\n{task_text}\n\n{text}"
