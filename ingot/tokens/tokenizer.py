"""The tokenizer: text to token ids and back, and the special tokens that structure is made of.

It wraps any tokenizer of the `tokenizers` library, Ingot's own (train_tokenizer.py) or another model's. The rest of Ingot
builds on two invariants:

* `encode` never produces a special id (but that for unknown characters, if the tokenizer has one). A special token's
  name inside a text is ordinary text; only code that asks for `special["<|im_end|>"]` gets the special id, so no
  document or message can forge a turn.
* `decode(encode(text)) == text` for every valid unicode text, if the tokenizer has a token for each byte and changes
  nothing before (`exact`), as Ingot's own. Others: SmolLM2 has no token for six control characters and for planes 4 to
  11 of Unicode, and loses them; one with a normaliser gives back the normalised text (Qwen: NFC); one that marks blanks
  with ▁ (sentencepiece) may give a blank before the text, and loses what it has no token for if it has no byte tokens.

The tokens that Ingot gives a meaning to are looked up by name, or in what the model's own files call its end of
sequence and its padding. A tokenizer may lack any of them: only what needs a missing one fails, and says so.

On disk a tokenizer is a folder with `tokenizer.json` and, if it has them, `chat_template.jinja`, `tokenizer_config.json`,
`special_tokens_map.json` and `generation_config.json`. `save` writes the files that were loaded byte for byte, and their
sha256 into `checksums.json`, with which `load` compares them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER, UTF8_BYTES
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import atomic_file, read_json, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from ingot.tokens.bpe.exact import ExactEncoder

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
"""Every special token of Ingot's own tokenizers in the order of its id, from 0. The reserved ones are for later stages,
which then need not resize the vocabulary."""

TOKENIZER_FILE, TEMPLATE_FILE = "tokenizer.json", "chat_template.jinja"
FORMAT_FILE = "chat_format.yaml"  # how the model writes its turns, where a user has named that (format_files.py)
TOKENIZER_CONFIG, SPECIAL_MAP, GENERATION_CONFIG = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
)
FILES = (TOKENIZER_FILE, TEMPLATE_FILE, FORMAT_FILE, TOKENIZER_CONFIG, SPECIAL_MAP, GENERATION_CONFIG)
CHECKSUMS_FILE = "checksums.json"  # of a folder that we wrote: one flipped bit gives other ids, and no error
BULK_CHARACTERS = 200_000  # a batch from which on it pays to make the fast encoder ready
LATIN_OF_CHARACTER = {ord(character): byte for character, byte in BYTE_OF_CHARACTER.items()}
DAMAGED = f"make the tokenizer again; if you changed the file yourself, delete {CHECKSUMS_FILE} beside it"
MARK = re.compile(r"[^\w\s].*\w.*[^\w\s]")
FALLBACK_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """Text to ids and back. Not changed after it is made, so it may be shared between threads.

    `files` are the files that it was read from, by name.
    """

    def __init__(self, backend: Backend, chat_template: str | None, files: Mapping[str, bytes] | None = None) -> None:
        self.backend = _structure_is_special(backend, chat_template or "")
        # With this flag the library reads a special token's name in a text as ordinary text. It is not part of
        # tokenizer.json, hence set here and nowhere else.
        self.backend.encode_special_tokens = True
        self.chat_template = chat_template
        self.files = dict(files or {})
        self._added = dict(sorted(self.backend.get_added_tokens_decoder().items()))
        self.special: dict[str, int] = {token.content: id for id, token in self._added.items() if token.special}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "encoder"}  # made again where needed

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a tokenizer folder."""
        if not (folder / TOKENIZER_FILE).is_file():
            raise ArtifactError(
                f"no {TOKENIZER_FILE}", place=str(folder), fix="give the folder of a tokenizer or run `ingot tokenizer`"
            )
        files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
        if (folder / CHECKSUMS_FILE).is_file():
            _compare(files, folder / CHECKSUMS_FILE)
        return cls.from_files(files, str(folder))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], place: str) -> Tokenizer:
        """The tokenizer of a folder's files; `place` is named in errors."""
        from tokenizers import Tokenizer as Backend

        try:
            backend = Backend.from_str(files[TOKENIZER_FILE].decode("utf-8"))
        # The library raises a bare Exception for a file it cannot read, so nothing narrower can be caught.
        except Exception as error:
            raise ArtifactError(
                f"not a readable tokenizer: {error}",
                place=f"{place}/{TOKENIZER_FILE}",
                fix="make it again: copy the model's folder, or run the tokenizer stage",
            ) from error
        if TEMPLATE_FILE in files:
            return cls(backend, files[TEMPLATE_FILE].decode("utf-8"), files)
        template = _json_object(files, TOKENIZER_CONFIG, place).get("chat_template")
        if isinstance(template, list):  # several by name, as transformers 4 wrote them
            template = next((one["template"] for one in template if one["name"] == "default"), None)
        return cls(backend, template, files)

    def to_files(self) -> dict[str, bytes]:
        """The files of its folder: those that it was read from, as they were, or new ones."""
        if self.files:
            return dict(self.files)
        files = {TOKENIZER_FILE: (self.backend.to_str(pretty=True) + "\n").encode()}
        return files if self.chat_template is None else files | {TEMPLATE_FILE: self.chat_template.encode()}

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`, each file atomically, and last the sha256 of each."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CHECKSUMS_FILE).unlink(missing_ok=True)
        files = self.to_files()
        for name, data in files.items():
            with atomic_file(folder / name) as temporary:
                temporary.write_bytes(data)
        write_json(folder / CHECKSUMS_FILE, {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})

    @cached_property
    def vocabulary_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values())

    def token(self, name: str) -> int:
        """The id of a special token; an error if the tokenizer lacks it."""
        if name not in self.special:
            raise ArtifactError(
                f"the tokenizer has no special token {name}",
                fix="use a model that was trained with it, or leave out what needs it (thinking, tools, chat)",
            )
        return self.special[name]

    @cached_property
    def names(self) -> dict[str, str]:
        """What the model's files call their tokens (bos_token, eos_token, pad_token …): templates may print these."""
        found = {**_json_object(self.files, SPECIAL_MAP), **_json_object(self.files, TOKENIZER_CONFIG)}
        named = {key: value.get("content") if isinstance(value, dict) else value for key, value in found.items()}
        return {key: name for key, name in named.items() if key.endswith("_token") and isinstance(name, str)}

    @cached_property
    def end_of_text(self) -> int:
        """The id that ends every document."""
        known = self._known(END_OF_TEXT, "<|end_of_text|>", self.names.get("eos_token")) or self._generation_ends
        if not known:
            raise ArtifactError(
                f"the tokenizer has no token that ends a text: neither {END_OF_TEXT} nor an eos_token",
                fix=f"name it as eos_token in {TOKENIZER_CONFIG}",
            )
        return known[0]

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The ids at which a model stops: the end of a text and whatever its files name."""
        named = self._known(self.names.get("eos_token"))
        return tuple(dict.fromkeys([self.end_of_text, *named, *self._generation_ends]))

    @cached_property
    def pad(self) -> int:
        """The id that fills what holds no text; where none is named, the end of a text."""
        return [*self._known(PAD, self.names.get("pad_token")), self.end_of_text][0]

    @cached_property
    def _generation_ends(self) -> list[int]:
        ids = _json_object(self.files, GENERATION_CONFIG).get("eos_token_id")
        return [id for id in (ids if isinstance(ids, list) else [ids]) if isinstance(id, int)]

    def _known(self, *names: str | None) -> list[int]:
        """The ids of those names that are added tokens."""
        ids = {token.content: id for id, token in self._added.items()}
        return [ids[name] for name in names if name in ids]

    @cached_property
    def opening(self) -> list[int]:
        """The special ids with which every text begins, if the tokenizer asks for any (Llama: one)."""
        text = "a"
        ids = self.backend.encode(text, add_special_tokens=True).ids
        plain = self.encode(text)
        return next(ids[:start] for start in range(len(ids)) if ids[start : start + len(plain)] == plain)

    @cached_property
    def begin(self) -> int:
        """The id that stands before a text with nothing before it: of the beginning where there is one, else of the end."""
        return [*self.opening[-1:], *self._known(self.names.get("bos_token"), self.names.get("eos_token")), *self.ends][
            0
        ]

    @cached_property
    def byte_level(self) -> bool:
        """Whether its tokens are bytes in the GPT-2 convention; if not, they are characters, with ▁ for a blank."""
        return self.backend.decoder is not None and b'"ByteLevel"' in self.backend.decoder.__getstate__()

    @cached_property
    def exact(self) -> bool:
        """Whether `decode(encode(text)) == text` for every valid text."""
        if not self.byte_level or self.backend.normalizer is not None:
            return False
        vocabulary = self.backend.get_vocab()
        every_byte = all(character in vocabulary for character, byte in BYTE_OF_CHARACTER.items() if byte in UTF8_BYTES)
        return every_byte and self.encode("a") != self.encode(" a")  # equal where a blank is put before a text

    def strips(self, id: int) -> tuple[bool, bool]:
        """Whether the special token swallows the blanks before it, and those after it."""
        token = self._added[id]
        return bool(token.lstrip), bool(token.rstrip)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; never a special id. A lone surrogate, which no UTF-8 text can hold, becomes U+FFFD."""
        ids: list[int] = self.backend.encode(_valid_unicode(text), add_special_tokens=False).ids
        return ids

    @cached_property
    def encoder(self) -> ExactEncoder:
        """Encodes whole columns of text: the same ids as `encode`, some fifty times as fast (bpe/exact.py)."""
        from ingot.tokens.bpe.exact import exact_encoder

        return exact_encoder(self.backend)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        if sum(map(len, texts)) >= BULK_CHARACTERS and self.encoder.fast:
            from ingot.data.text.texts import Texts

            return self.encoder.encode(Texts.of([_valid_unicode(text) for text in texts])).lists()
        encodings = self.backend.encode_batch_fast([_valid_unicode(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of `ids`. Bytes that are no valid UTF-8 (a character cut in two) become U+FFFD."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The exact bytes of `ids`; special tokens stand for their names, or for nothing with `skip_special`."""
        spelled = self.bytes_of_id
        try:
            if skip_special:
                return b"".join(spelled[id] for id in ids if id not in self._special_ids)
            return b"".join(spelled[id] for id in ids)
        except KeyError as error:
            raise DataError(
                f"token id {error.args[0]} is not in the vocabulary of {self.vocabulary_size}",
                fix="decode with the tokenizer that made these tokens",
            ) from None

    def piece(self, id: int) -> str:
        """One token for a display; U+FFFD where it is only a part of a character."""
        return self.decode((id,))

    @cached_property
    def name_of_special(self) -> dict[int, str]:
        """The names of the special tokens, by id."""
        return {id: name for name, id in self.special.items()}

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.special.values())

    @cached_property
    def bytes_of_id(self) -> dict[int, bytes]:
        """What each id spells; a special one its name."""
        vocabulary = self.backend.get_vocab(with_added_tokens=True)
        spell = _spell_bytes if self.byte_level else _spell_characters
        table = dict.fromkeys(range(self.vocabulary_size), b"")  # some vocabularies have ids without a token
        table |= {id: spell(token) for token, id in vocabulary.items() if id not in self._added}
        return table | {id: token.content.encode("utf-8") for id, token in self._added.items()}


def _structure_is_special(backend: Backend, template: str) -> Backend:
    """The backend with structure special: some models add <think> or <｜User｜> as tokens that any text may spell.

    Structure is what Ingot has a name for, and what the chat template prints between signs; a word such as /nothink is none.
    """
    added = [token.content for token in backend.get_added_tokens_decoder().values() if not token.special]
    structure = {name for name in added if name in NAMED_SPECIAL_TOKENS or (MARK.fullmatch(name) and name in template)}
    if not structure:
        return backend
    state = json.loads(backend.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["special"] or token["content"] in structure
    return type(backend).from_str(json.dumps(state))


def _json_object(files: Mapping[str, bytes], name: str, place: str = "the tokenizer") -> dict[str, Any]:
    """The JSON object in a file; an empty one if there is no such file."""
    try:
        value = json.loads(files.get(name, b"{}"))
    except ValueError as error:
        raise ArtifactError(
            f"not JSON: {error}", place=f"{place}/{name}", fix="copy the model's folder again"
        ) from error
    if not isinstance(value, dict):
        raise ArtifactError("not a JSON object", place=f"{place}/{name}", fix="copy the model's folder again")
    return value


def _compare(files: Mapping[str, bytes], checksums: Path) -> None:
    """Raise an error that names the first file which is missing or not what was written."""
    try:
        listed = dict(read_json(checksums))
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"the file is damaged: {error}", place=str(checksums), fix=DAMAGED) from error
    for name, digest in listed.items():
        if name not in files:
            raise ArtifactError("a file of the tokenizer is missing", place=str(checksums.with_name(name)), fix=DAMAGED)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ArtifactError(
                f"the file is damaged: its sha256 is not the one in {checksums.name}",
                place=str(checksums.with_name(name)),
                fix=DAMAGED,
            )


def _spell_bytes(token: str) -> bytes:
    return token.translate(LATIN_OF_CHARACTER).encode("latin-1")


def _spell_characters(token: str) -> bytes:
    byte = FALLBACK_BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode("utf-8")


def _valid_unicode(text: str) -> str:
    """`text` without lone surrogates: a model may write "\\ud800" in JSON, and the library refuses such a text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
