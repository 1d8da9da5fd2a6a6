"""The character that stands for each byte in a byte-level vocabulary (the GPT-2 convention)."""

from __future__ import annotations

UTF8_BYTES = frozenset({*range(0xC0), *range(0xC2, 0xF5)})
"""The bytes that valid UTF-8 can hold."""


def byte_level_alphabet() -> dict[str, int]:
    """The byte of each character.

    Printable Latin-1 bytes stand for themselves; the 68 others take the characters from U+0100 on, in order, so that
    no vocabulary entry holds a blank or control character.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


BYTE_OF_CHARACTER = byte_level_alphabet()
