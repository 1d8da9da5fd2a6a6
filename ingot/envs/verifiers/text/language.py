"""The language of a text.

The model is fastText's lid.176 (see `ingot.data.steps.language`). IFEval's own checker calls langdetect, which draws random
numbers and so answers differently from run to run; this one is a function of the text. Text is lower-cased first, because
the model knows few words in capitals. A text without letters is in no language.
"""

from __future__ import annotations

from functools import lru_cache

LONGEST = 20_000  # characters looked at: enough for a language, and a bound on the time


@lru_cache(maxsize=512)  # the loose variants of an answer are often the same text
def detect_language(text: str) -> tuple[str | None, float]:
    """The ISO 639-1 code of the most likely language and its probability; (None, 0) for a text without letters."""
    import numpy as np

    from ingot.data.steps.language import language_model

    text = " ".join(text[:LONGEST].lower().split())
    if not any(character.isalpha() for character in text):
        return None, 0.0
    model = language_model(None)
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    scores = model.probabilities(model.hidden(data, np.array([0], np.int64), np.array([len(data)], np.int64)))[0]
    best = int(scores.argmax())
    return model.labels[best], float(scores[best])


def in_language(text: str, language: str) -> bool:
    """Whether the text is in `language` (an ISO 639-1 code)."""
    return detect_language(text)[0] == language
