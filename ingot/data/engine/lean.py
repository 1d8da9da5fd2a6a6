"""Libraries without the libraries that they look for and that no task needs.

pyarrow looks for pandas when it makes its first array, numba looks for scipy when it loads its first kernel (for BLAS, which
no kernel calls). Together they take half a second and tens of megabytes in every worker. Here both look once while the
other library cannot be found, and do not look again; code that imports pandas or scipy itself still gets them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


def load_lean() -> None:
    """Load pyarrow and numba by themselves. Does nothing for one that has found its companion already."""
    import pyarrow

    with hidden("pandas"):
        pyarrow.array([0])
    with hidden("scipy"):
        import numba.np.arraymath  # noqa: F401


class Hides(MetaPathFinder):
    """Asked before all others where a module is, says of one that there is none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == self.name:
            raise ModuleNotFoundError(f"no {fullname} here", name=fullname)


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """While inside, a library that was not imported yet cannot be found."""
    finder = Hides(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
