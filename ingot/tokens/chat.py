"""Conversations as tokens: what the model reads, what it must write, and back.

The layout is that of the tokenizer's chat template. Ingot's own (`templates/ingot.jinja`) is ChatML:

    <|im_start|>user\\nTEXT<|im_end|>\\n<|im_start|>assistant\\n<think>TRACE</think>ANSWER<|im_end|>\\n

What the model writes is found in the rendered text, so any template serves: an assistant turn begins where the prompt for it
(the turns before it, rendered with the generation prompt) ends, and goes on to the token that ends a turn, which is the
last special token that the template prints for a conversation that ends with it.

Invariants, each with a test:

* `prompt(messages[:k])` is an exact token prefix of `conversation(messages)` for every assistant turn k that is learnt, because
  text is cut at the boundary between what is given and what is generated, and each part is encoded by itself.
* The assistant mask is 1 exactly on what the model writes. Without thinking the generation prompt itself supplies
  `<think></think>`, so these two are 0. A conversation whose mask is all zero is an error, never a silent no-op.
* A turn that the template shows otherwise once others follow (Qwen 3 drops its trace, harmony changes its end) is context and
  not learnt: it would teach answers without their traces. The last turn must be learnt, or the template is refused.
* Tokens are encoded once: `continuation` gives the tokens between two assistant turns, and sampled tokens are not encoded again.
* Nothing that a learnt turn says is lost in silence: a trace, a call or a text that the template does not print is an error.
* No content can forge structure that is made of special tokens: see `ingot.tokens.template`.
* `parse` is total, and inverts an assistant turn of every template that comes with Ingot: see `ingot.tokens.turn`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

from ingot.tokens.format_files import syntax_of
from ingot.tokens.layout import PROBE, Layout, put_together
from ingot.tokens.message import Message as Message
from ingot.tokens.message import ToolCall as ToolCall
from ingot.tokens.probing import PROBE_CALL, Probe, with_call_form
from ingot.tokens.rendering import Format, Rendering
from ingot.tokens.template import ChatTemplate, can_be_structure
from ingot.tokens.template_files import template_options
from ingot.tokens.tokenizer import TEMPLATE_FILE, Tokenizer
from ingot.tokens.turn import TurnReader
from ingot.workspace.errors import ArtifactError, DataError

ANSWER = re.compile(r"\s*<answer>(.*)</answer>\s*", re.DOTALL)
SHORT, PIECES = 256, 4096  # characters of a text whose tokens are kept, and how many such texts


class ChatFormat:
    """Messages to tokens and back, by the chat template that belongs to the tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise ArtifactError(
                "the tokenizer has no chat template, so the layout of a conversation is unknown",
                fix=f"choose one with `ingot model template`, or put it into the tokenizer's folder as {TEMPLATE_FILE}",
            )
        self.tokenizer = tokenizer
        self.syntax = syntax_of(tokenizer)  # how the model writes traces and calls
        self._names = sorted(filter(can_be_structure, tokenizer.special), key=len, reverse=True)
        self._answer_tags = bool(template_options(tokenizer.chat_template).get("answer_tags"))
        self._pieces: dict[str, list[int]] = {}  # of short texts: most are the template's own, and come in every turn
        self._structure = re.compile("|".join(map(re.escape, self._names)) or "(?!)")
        template = ChatTemplate(tokenizer.chat_template)
        self._format = with_call_form(Format(template, self.syntax, self._names, tokenizer.names))
        self._probe = Probe(self._format, tokenizer, self._structure)
        self._check_encoding()

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> list[int]:
        """The tokens of `messages` and the generation prompt: what the model is given to write the next turn."""
        rendering = Rendering(self._format, messages, tools, thinking)
        text = rendering.prompt(len(messages))
        try:
            return self._tokens_and_mask(text, rendering, self._turns(text, rendering))[0]
        except (
            DataError
        ):  # the template shows earlier turns differently from how they were written: there is no prefix to cut at
            return self._encode(text, rendering)

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> tuple[list[int], list[int]]:
        """The tokens of a whole conversation and the mask: 1 on what the model writes in each assistant turn."""
        return self.learnt(self.rendering(messages, tools, thinking))

    def rendering(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        thinking: bool = True,
        begun: Rendering | None = None,
    ) -> Rendering:
        """A conversation on its way through the template. One that goes on from another, `begun`, shares its work."""
        return Rendering(self._format, messages, tools, thinking, begun)

    def learnt(self, rendering: Rendering) -> tuple[list[int], list[int]]:
        """The tokens and the mask of a whole conversation that is on its way through the template."""
        text = self._as_written(rendering)
        turns = self._turns(text, rendering)
        for number, (start, end) in turns.items():
            rendering.check_printed(number, text[start:end])
        tokens, mask = self._tokens_and_mask(text, rendering, turns)
        if not any(mask):
            raise DataError(
                "the assistant mask is all zero: nothing would be learnt from this conversation",
                fix="give a conversation with at least one assistant turn",
            )
        return tokens, mask

    def continuation(
        self, messages: Sequence[Message], thinking: bool = True, after: Message | None = None
    ) -> list[int]:
        """The tokens between a finished assistant turn (its end included there) and the next one's first token.

        `messages` are the turns in between: tool results, or what the user says next. `after` is the finished turn, for
        templates that name the called tool in its result (harmony).
        """
        opening = [Message("user", "."), Message("assistant", PROBE)]
        if self.syntax.calls and messages and messages[0].role == "tool":
            name = after.tool_calls[-1].name if after is not None and after.tool_calls else PROBE_CALL.name
            opening[1] = Message("assistant", "", tool_calls=[ToolCall(name, PROBE_CALL.arguments)])
        rendering = Rendering(self._format, [*opening, *messages], None, thinking)
        text = rendering.prompt(len(opening) + len(messages))
        # Not found by that turn's prompt: a template that opens a trace for the model prints none before an answer without one.
        for found in self._structure.finditer(text, text.find(PROBE)) if PROBE in text else ():
            if self.tokenizer.special[found[0]] in (*self.turn_ends, self._probe.inner_end):
                return self._encode(text[found.end() :], rendering)
        raise DataError(
            f"the chat template prints no {self.tokenizer.piece(self.turn_end)} after an answer that others follow",
            fix="use a template that ends every assistant turn",
        )

    @property
    def turn_end(self) -> int:
        """The token with which the model ends its turn."""
        return self.turn_ends[0]

    @cached_property
    def turn_ends(self) -> tuple[int, ...]:
        """The tokens with which the model ends its turn: an answer's first, and that of a call if it is another (harmony)."""
        return tuple(dict.fromkeys((self._probe.answer_end, self._probe.call_end)))

    @cached_property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens at which sampling stops: the end of a turn, and the model's own ends of a text."""
        return tuple(dict.fromkeys([*self.turn_ends, *self.tokenizer.ends]))

    def opens_trace(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt ends inside a trace: some templates open it for the model."""
        if self.syntax.think is None:
            return False
        if set(self.syntax.think) <= set(
            self.tokenizer.special
        ):  # by ids, from the end: what decides is in the last few
            opening, closing = (self.tokenizer.special[tag] for tag in self.syntax.think)
            decisive = {opening, closing, *self.turn_ends}
            return next((id == opening for id in reversed(prompt) if id in decisive), False)
        last = max((index for index, id in enumerate(prompt) if id in self.turn_ends), default=-1)
        tail = self.tokenizer.decode(prompt[last + 1 :])
        start, end = (tail.rfind(tag) for tag in self.syntax.think)
        return start > end

    def parse(
        self,
        tokens: Sequence[int],
        in_thinking: bool = False,
        stops: Sequence[str] = (),
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> Message:
        """The assistant turn that the sampled `tokens` spell; what is malformed is reported in `problems`.

        One of `stops` ends a turn as its token does: the answer is what stands before it.

        The tokens are those after the generation prompt, the end of the turn included. Marks that are special tokens are
        read from their ids only, so that text that merely looks like a tag is content. The schemas of `tools` say which arguments
        are text, where the format writes them without quotes.
        """
        message, ends = Message("assistant"), self.turn_ends
        end = next((index for index, token in enumerate(tokens) if token in ends), None)
        stopped = end is None and any(stop in self.tokenizer.decode(tokens) for stop in stops)
        if end is None and not stopped:
            message.problems.append(f"no {self.tokenizer.piece(self.turn_end)}: the turn is cut off")
        elif end is not None and end + 1 < len(tokens):
            message.problems.append(f"{len(tokens) - end - 1} tokens after {self.tokenizer.piece(tokens[end])}")
        reader = TurnReader(self.tokenizer, self.syntax, in_thinking=in_thinking, tools=tools)
        # In harmony the end of the turn also ends its last message, so the reader sees it.
        written = tokens if end is None else tokens[: end + (self.tokenizer.piece(tokens[end]) in self.syntax.ends)]
        parts = list(reader.read(written))
        message.problems += reader.problems
        message = put_together(parts, message, self.layout, self.syntax)
        if stopped:
            message.content = message.content[: min(_start(message.content, stop) for stop in stops)]
        return _without_tags(message) if self._answer_tags else message

    @property
    def layout(self) -> Layout:
        """The blanks that the template prints around traces and calls."""
        return self._probe.layout

    def _turns(self, text: str, rendering: Rendering) -> dict[int, tuple[int, int]]:
        """Where the assistant turns that the rendered text shows as they were written begin and end in it."""
        found = {number: self._turn(text, rendering, number) for number in rendering.assistant_turns}
        return {number: turn for number, turn in found.items() if turn is not None}

    def _tokens_and_mask(
        self, text: str, rendering: Rendering, turns: Mapping[int, tuple[int, int]]
    ) -> tuple[list[int], list[int]]:
        """The tokens of rendered text, each of these turns encoded by itself, and 1 for those that the model writes."""
        cuts = [0, *chain.from_iterable(turns.values())]
        tokens: list[int] = []
        mask: list[int] = []
        for index, (start, end) in enumerate(pairwise([*cuts, len(text)])):
            part = self._encode(text[start:end], rendering)
            tokens += part
            mask += [index % 2] * len(part)
        return tokens, mask

    def _as_written(self, rendering: Rendering) -> str:
        """The conversation as the model saw it when it wrote the last turn.

        Harmony drops the traces of tool calls once an answer follows, so the prompt of the answer is not how the template shows
        what is before it. Then the turn, rendered after another question, is put behind its prompt.
        """
        if not rendering.assistant_turns:
            return rendering.whole()
        text = self._closed(rendering.whole(), rendering, rendering.turns - 1)
        number = rendering.assistant_turns[-1]
        prompt = rendering.prompt(number)
        if text.startswith(prompt) or number + 1 < rendering.turns:
            return text
        alone = rendering.after_a_question(number)
        if not alone.whole().startswith(alone.prompt(1)):
            return text
        return prompt + self._closed(alone.whole(), alone, 1).removeprefix(alone.prompt(1))

    def _closed(self, text: str, rendering: Rendering, number: int) -> str:
        """The rendered text with the end of its last turn, which some templates print only once others follow."""
        closing = self._probe.closing(rendering.message(number))
        return text if not closing or text.endswith(closing) else text + closing

    def _turn(self, text: str, rendering: Rendering, number: int) -> tuple[int, int] | None:
        """Where the assistant turn `number` begins and ends in the rendered `text`; None if it is shown otherwise there."""
        last = number == rendering.assistant_turns[-1]
        prompt = rendering.prompt(number)
        at_end = number + 1 == rendering.turns and text.startswith(prompt)
        written = text if at_end else self._closed(rendering.first(number + 1), rendering, number)
        ends = [
            found.end()
            for found in self._structure.finditer(written, len(prompt))
            if self.tokenizer.special[found[0]] in self.turn_ends
        ]
        if not written.startswith(prompt) and last:
            raise DataError(
                "the chat template renders the turns before this one differently once it is there, so its prompt is not "
                "a prefix of the conversation",
                place=f"message {number}",
                fix="end the conversation with this turn, or use a template that prints the same text before an "
                "assistant turn as add_generation_prompt prints",
            )
        if not ends and last:
            raise DataError(
                f"the chat template prints no {self.tokenizer.piece(self.turn_end)} after this turn: the model would not "
                "learn to stop",
                place=f"message {number}",
                fix="use a template that ends every assistant turn",
            )
        shown = bool(ends) and written.startswith(prompt) and text.startswith(written[: ends[-1]])
        return (len(prompt), ends[-1]) if shown else None

    def _encode(self, text: str, rendering: Rendering) -> list[int]:
        """Tokens of rendered text. The text between two special tokens is encoded at once."""
        tokens: list[int] = []
        position, strip_next = 0, False
        for found in self._structure.finditer(text):
            id = self.tokenizer.special[found[0]]
            strips_before, strips_after = self.tokenizer.strips(id)
            tokens += self._encode_plain(rendering.show(text[position : found.start()]), strip_next, strips_before)
            tokens.append(id)
            position, strip_next = found.end(), strips_after
        return tokens + self._encode_plain(rendering.show(text[position:]), strip_next, False)

    def _encode_plain(self, text: str, strip_left: bool, strip_right: bool) -> list[int]:
        text = text.lstrip() if strip_left else text
        text = text.rstrip() if strip_right else text
        if len(text) > SHORT:
            return self.tokenizer.encode(text)
        if text not in self._pieces:
            if len(self._pieces) == PIECES:
                self._pieces.clear()
            self._pieces[text] = self.tokenizer.encode(text) if text else []
        return self._pieces[text]

    def _check_encoding(self) -> None:
        """Refuse a tokenizer that encodes a text after a special token differently from the same text alone."""
        if self.tokenizer.byte_level or not self._names:
            return
        whole = type(self.tokenizer.backend).from_str(self.tokenizer.backend.to_str())
        text = f"{self._names[-1]}user\nHi, who?{self._names[-1]}\n"
        ids = whole.encode(text, add_special_tokens=False).ids
        if self._encode(text, Rendering(self._format, [], None, True)) != ids:
            raise ArtifactError(
                "the tokenizer encodes a text that follows a special token differently from the same text alone (it puts a "
                "blank before the first word only)",
                fix="such a model can be loaded and trained on plain text, but Ingot cannot use its chat template",
            )


def _start(text: str, stop: str) -> int:
    """Where a stop string begins; the end of a text without it."""
    found = text.find(stop)
    return len(text) if found < 0 else found


def _without_tags(message: Message) -> Message:
    """The turn of a template whose answers stand in tags (`answer_tags`): what is inside them is the content, blanks left out."""
    found = ANSWER.fullmatch(message.content)
    if found is None and not message.tool_calls:
        message.problems.append("the answer is not between <answer> and </answer>")
    message.content = message.content if found is None else found[1].strip()
    message.thinking = message.thinking if message.thinking is None else message.thinking.strip()
    return message
