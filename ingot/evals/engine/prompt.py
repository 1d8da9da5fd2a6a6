"""From a question to what a model reads: plain text, or a conversation.

Plain text is that of the LM evaluation harness: description, then each worked example as question, delimiter, answer and an
empty line, then the question. A continuation is the delimiter and the answer. In a conversation the description is the system
message, worked examples are turns, and an answer stands alone.

A continuation's tokens are those that it adds: encode(context + continuation) without the first len(encode(context)), where
white space at the end of the context belongs to the continuation, as the harness has it. So likelihoods can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ingot.evals.engine.request import Conversation, PlainText, Prompt, Question
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from ingot.tokens.tokenizer import Tokenizer

Form = Literal["text", "chat"]


def as_text(question: Question) -> str:
    """The question as a base model reads it, up to where the answer begins; without the delimiter before the answer."""
    shots = "".join(
        text + question.delimiter + answer + question.between if answer else text + question.between
        for text, answer in question.shots
    )
    start = question.delimiter + question.start if question.start else ""
    return question.description + shots + question.text + start


def as_messages(question: Question) -> list[Message]:
    """The question as turns of a conversation."""
    messages = [Message("system", question.description.strip())] if question.description.strip() else []
    for text, answer in question.shots:
        messages += [Message("user", text), Message("assistant", answer)]
    return [*messages, Message("user", question.text)]


def as_conversation(prompt: Prompt) -> Conversation:
    """The prompt for a chat model."""
    assert not isinstance(prompt, PlainText)
    if isinstance(prompt, Conversation):
        return prompt
    return Conversation(tuple(as_messages(prompt)), start=prompt.start)


def plain_text(prompt: Prompt) -> str:
    """The prompt for a base model."""
    if isinstance(prompt, Conversation):
        raise RecipeError(
            "a conversation needs a chat model", fix="give a model with a chat template, or leave this suite out"
        )
    return prompt.text if isinstance(prompt, PlainText) else as_text(prompt)


def answer_text(prompt: Prompt, answer: str) -> str:
    """What follows `plain_text` if this is the answer."""
    if not isinstance(prompt, Question):
        return answer
    spaced = prompt.start and prompt.start[-1].isspace()
    return answer if spaced else prompt.delimiter + answer


def text_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a plain text, with those that open every text of this tokenizer."""
    return [*tokenizer.opening, *tokenizer.encode(text)]


def chat_tokens(chat: ChatFormat, conversation: Conversation, thinking: bool) -> list[int]:
    """The tokens of a conversation up to where the model writes."""
    tools = [dict(tool) for tool in conversation.tools] or None
    prompt = chat.prompt(conversation.messages, tools=tools, thinking=thinking)
    return [*prompt, *chat.tokenizer.encode(conversation.start)] if conversation.start else prompt


def split_tokens(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The tokens of a context, and those that the continuation adds to it."""
    kept = context.rstrip()
    context, continuation = kept, context[len(kept) :] + continuation
    if not context:
        return _after_nothing(tokenizer, tokenizer.encode(continuation))
    before = text_tokens(tokenizer, context)
    return before, text_tokens(tokenizer, context + continuation)[len(before) :]


def _after_nothing(tokenizer: Tokenizer, continuation: list[int]) -> tuple[list[int], list[int]]:
    first = tokenizer.begin
    return [first], list(continuation[1:] if continuation[:1] == [first] else continuation)
