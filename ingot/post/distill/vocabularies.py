"""Whether two models mean the same by a token's number, so that one may grade the tokens of the other."""

from __future__ import annotations

from ingot.model.transformer import Transformer
from ingot.workspace.errors import RecipeError


def vocabulary_difference(student: Transformer, teacher: Transformer) -> str | None:
    """What differs, or None if a token's number means the same to both."""
    sizes = student.config.vocabulary_size, teacher.config.vocabulary_size
    if sizes[0] != sizes[1]:
        return f"student and teacher have different vocabularies ({sizes[0]} and {sizes[1]} tokens)"
    if student.tokenizer is None or teacher.tokenizer is None:
        return None
    own, other = (each.backend.get_vocab(with_added_tokens=True) for each in (student.tokenizer, teacher.tokenizer))
    if differing := [token for token in own if other.get(token) != own[token]]:
        return (
            f"the teacher has another number than the student for {len(differing)} tokens, {differing[0]!r} among them"
        )
    return None


def check_vocabularies(student: Transformer, teacher: Transformer, place: str) -> None:
    """Fail unless a token's number means the same to both."""
    if problem := vocabulary_difference(student, teacher):
        fix = "use a teacher, or a reward model, with the tokenizer of the model that is trained"
        raise RecipeError(problem, place=place, fix=fix)
