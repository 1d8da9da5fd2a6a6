"""A step of curation that makes attention worth having after a minute of training: text that says everything several times.

    the cat sat on a      the cat sthe cat sthe cat sat on a at on a at on a        three times, pieces of 8

A small model learns to look `length` characters back long before it learns to read. Whoever hides that one key from it notices:
ordinary text would not show it, as a model of a minute reads little but the last words, and hardly cares which keys it sees.
"""


def repeated(text: str, length: int = 16, times: int = 8) -> str:
    """Every piece of `length` characters, `times` times; only ASCII, so that a character is a token of one byte."""
    plain = text.encode("ascii", "ignore").decode()
    return "".join(plain[start : start + length] * times for start in range(0, len(plain) - length + 1, length))
