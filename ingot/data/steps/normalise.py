"""The step `normalise` brings texts into a Unicode normal form (Unicode Standard Annex 15)."""

from __future__ import annotations

import unicodedata
from typing import Literal

import numpy as np
import pyarrow
import pyarrow.compute as compute
from pydantic import Field

from ingot.data.step import PerDocument
from ingot.data.text.texts import rewritten


class NormaliseStep(PerDocument):
    """Bring texts into one Unicode normal form."""

    rate = 109

    form: Literal["NFC", "NFKC"] = Field(
        default="NFC",
        description="`NFC`: one code for a letter and its accents, the meaning unchanged; `NFKC`: also plain letters for "
        "ligatures, full-width forms and superscripts",
    )

    def writes(self) -> tuple[str, ...]:
        return ("text",)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        form = self.form
        text = documents.column("text")
        suspects = np.flatnonzero(
            ~compute.string_is_ascii(text).to_numpy().astype(bool)
        )  # ASCII is normal in all forms
        return {"text": rewritten(text, suspects, lambda value: unicodedata.normalize(form, value))}
