"""Unicode normal forms (Unicode Standard Annex 15). A text that is normal already is not touched."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from ingot.data.extract.config import NormaliseStep
from ingot.data.extract.rewrite import rewritten
from ingot.data.step import PerDocument

if TYPE_CHECKING:
    import pyarrow


class Normalise(PerDocument[NormaliseStep]):
    """The step `normalise`."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        import numpy as np
        import pyarrow.compute as compute

        form = self.config.form
        text = documents.column("text")
        suspects = np.flatnonzero(
            ~compute.string_is_ascii(text).to_numpy().astype(bool)
        )  # ASCII is normal in all forms
        return {"text": rewritten(text, suspects, lambda value: unicodedata.normalize(form, value))}
