"""Names for the arrays that kernels take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]  # text in UTF-8, or a byte of flags for each of something
Offsets = NDArray[np.int64]  # where something is, or how much of it there is
Sizes = NDArray[np.int32]  # small numbers, one for each word or line
Words = NDArray[np.uint32]  # signatures, tables of characters
Hashes = NDArray[np.uint64]
Marks = NDArray[np.bool_]
