"""Names for the arrays that this room's kernels pass around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]  # UTF-8
Words = NDArray[np.uint32]  # signatures, tables of characters
Hashes = NDArray[np.uint64]
Offsets = NDArray[np.int64]  # places of documents, offsets, row numbers
