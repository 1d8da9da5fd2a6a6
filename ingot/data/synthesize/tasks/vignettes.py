"""Asks for short scenes that together hold every mention of a word in a long document."""

from __future__ import annotations

from pydantic import Field

from ingot.data.synthesize.checks import cleaned
from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest, sentences
from ingot.data.synthesize.sections import SHORTEST_WORD, Frequencies, SectionTask, words_of


class VignettesTask(SectionTask):
    """Short scenes that together hold every mention of a phrase in a long document, written by the model (OLMo 3: REX).

    The program collects up to `snippets` sentences around a frequent phrase; the model rewrites them as scenes. An answer
    must name the phrase and take up content words of at least `min_snippets_used` of the sentences.
    """

    snippets: int = Field(default=8, ge=2, le=32, description="sentences given to the model")
    min_snippets_used: int = Field(default=5, ge=1, description="sentences whose content the answer must take up")

    def ask(self, section: SourcePassage, frequencies: Frequencies) -> list[WriterRequest]:
        """One request about the most telling word with enough sentences around it."""
        every = sentences(section.text)
        for word in frequencies.telling(section.text, self.snippets, 10**9):
            around = [sentence for sentence in every if word in words_of(sentence)]
            if len(around) < self.snippets:
                continue
            step = len(around) / self.snippets  # from the whole of the text, not its first page
            snippets = [around[int(number * step)] for number in range(self.snippets)]
            listed = "\n".join(f"{number}. {snippet}" for number, snippet in enumerate(snippets, 1))
            prompt = (
                f"These sentences from one long text are all about “{word}”:\n\n{listed}\n\nWrite a few short scenes (a "
                "conversation, a letter, a report: your choice) that together take up what every one of the sentences says about "
                f"“{word}”. Invent nothing that contradicts them. Write only the scenes."
            )
            return [self.request(section, prompt, word=word, snippets=snippets)]
        return []

    def check(self, request: WriterRequest, answer: str) -> str:
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
        if used < self.min_snippets_used:
            raise Refused("sentences left out")
        task_text = f"Write scenes that take up everything the text above says about “{word}”."
        return f"{request.passage.text}\n\n{task_text}\n\n{text}"
