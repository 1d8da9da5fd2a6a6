"""The tokenizer: text to token ids and back, and the fixed set of special tokens.

A byte-level BPE over the `tokenizers` library. Two invariants that the rest of Ingot builds on:

* `decode(encode(text)) == text` for every valid unicode text (byte level: no text is out of vocabulary).
* `encode` never produces a special id. A special token's name inside a text is ordinary text; only code that
  asks for `special["<|im_end|>"]` gets the special id, so no document or message can forge a turn.

On disk a tokenizer is a folder with `tokenizer.json` (readable by `tokenizers` and `transformers`) and
`chat_template.jinja`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import write_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

END_OF_TEXT, PAD = "<|endoftext|>", "<|pad|>"
TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
THINK_START, THINK_END = "<think>", "</think>"
TOOL_CALL_START, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_RESPONSE_START, TOOL_RESPONSE_END = "<tool_response>", "</tool_response>"

NAMED_SPECIAL_TOKENS = (
    END_OF_TEXT,
    PAD,
    TURN_START,
    TURN_END,
    THINK_START,
    THINK_END,
    TOOL_CALL_START,
    TOOL_CALL_END,
    TOOL_RESPONSE_START,
    TOOL_RESPONSE_END,
)
SPECIAL_COUNT = 16
SPECIAL_TOKENS = NAMED_SPECIAL_TOKENS + tuple(
    f"<|reserved_{index}|>" for index in range(SPECIAL_COUNT - len(NAMED_SPECIAL_TOKENS))
)
"""Every special token in the order of its id, from 0. The reserved ones give later stages room without a resize."""

TOKENIZER_FILE, TEMPLATE_FILE = "tokenizer.json", "chat_template.jinja"


class Tokenizer:
    """Text to ids and back. Not changed after it is made, so it may be shared between threads."""

    def __init__(self, backend: Backend, chat_template: str) -> None:
        # With this flag the library reads a special token's name in a text as ordinary text. It is not part of
        # tokenizer.json, hence set here and nowhere else.
        backend.encode_special_tokens = True
        self.backend = backend
        self.chat_template = chat_template
        added = backend.get_added_tokens_decoder()
        self.special: dict[str, int] = {token.content: id for id, token in sorted(added.items()) if token.special}
        missing = [name for name in NAMED_SPECIAL_TOKENS if name not in self.special]
        if missing:
            raise ArtifactError(
                f"the tokenizer lacks the special tokens {', '.join(missing)}",
                fix="use a tokenizer made by `ingot tokenizer`, or add these tokens as special tokens",
            )

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a tokenizer folder."""
        from tokenizers import Tokenizer as Backend

        file, template = folder / TOKENIZER_FILE, folder / TEMPLATE_FILE
        for path in (file, template):
            if not path.is_file():
                raise ArtifactError(
                    f"no {path.name}", place=str(folder), fix="give the folder of a tokenizer or run `ingot tokenizer`"
                )
        try:
            backend = Backend.from_str(file.read_text(encoding="utf-8"))
        # The library raises a bare Exception for a file it cannot read, so nothing narrower can be caught.
        except Exception as error:
            raise ArtifactError(
                f"not a readable tokenizer: {error}", place=str(file), fix="delete it and run the tokenizer stage again"
            ) from error
        return cls(backend, template.read_text(encoding="utf-8"))

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`, each file atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / TOKENIZER_FILE, self.backend.to_str(pretty=True) + "\n")
        write_text(folder / TEMPLATE_FILE, self.chat_template)

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are, special tokens included: every id is below it."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    @property
    def end_of_text(self) -> int:
        """The id that ends every document."""
        return self.special[END_OF_TEXT]

    @property
    def pad(self) -> int:
        """The id that fills what holds no text."""
        return self.special[PAD]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; never a special id. A lone surrogate, which no UTF-8 text can hold, becomes U+FFFD."""
        ids: list[int] = self.backend.encode(_valid_unicode(text), add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        encodings = self.backend.encode_batch_fast([_valid_unicode(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of `ids`. Bytes that are no valid UTF-8 (a character cut in two) become U+FFFD."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The exact bytes of `ids`; special tokens stand for their names, or for nothing with `skip_special`."""
        pieces = self._bytes_of_id
        try:
            if skip_special:
                return b"".join(pieces[id] for id in ids if id not in self._special_ids)
            return b"".join(pieces[id] for id in ids)
        except KeyError as error:
            raise DataError(
                f"token id {error.args[0]} is not in the vocabulary of {self.vocabulary_size}",
                fix="decode with the tokenizer that made these tokens",
            ) from None

    def piece(self, id: int) -> str:
        """One token for a display; U+FFFD where it holds only a part of a character."""
        return self.decode((id,))

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.special.values())

    @cached_property
    def _bytes_of_id(self) -> dict[int, bytes]:
        byte_of_character = byte_level_alphabet()
        table: dict[int, bytes] = {}
        for token, id in self.backend.get_vocab(with_added_tokens=True).items():
            if id in self._special_ids:
                table[id] = token.encode("utf-8")
            else:
                table[id] = bytes(byte_of_character[character] for character in token)
        return table


def byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (the GPT-2 convention).

    Printable Latin-1 bytes stand for themselves; the 68 others take the characters from U+0100 on, in order, so that
    no vocabulary entry holds a blank or control character.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


def _valid_unicode(text: str) -> str:
    """`text` without lone surrogates: a model may write "\\ud800" in JSON, and the library refuses such a text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
