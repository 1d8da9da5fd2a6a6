"""Whether two models mean the same by a token's number, so that one may grade the tokens of the other."""

from __future__ import annotations

from ingot.model.transformer import Transformer
from ingot.workspace.errors import RecipeError


def check_vocabularies(student: Transformer, teacher: Transformer, place: str) -> None:
    """Fail unless a token's number means the same to both."""
    fix = "use a teacher, or a reward model, with the tokenizer of the model that is trained"
    sizes = student.config.vocabulary_size, teacher.config.vocabulary_size
    if sizes[0] != sizes[1]:
        problem = f"student and teacher have different vocabularies ({sizes[0]} and {sizes[1]} tokens)"
        raise RecipeError(problem, place=place, fix=fix)
    if student.tokenizer is None or teacher.tokenizer is None:
        return
    own, other = (each.backend.get_vocab(with_added_tokens=True) for each in (student.tokenizer, teacher.tokenizer))
    if differing := [token for token in own if other.get(token) != own[token]]:
        problem = (
            f"the teacher has another number than the student for {len(differing)} tokens, {differing[0]!r} among them"
        )
        raise RecipeError(problem, place=place, fix=fix)
