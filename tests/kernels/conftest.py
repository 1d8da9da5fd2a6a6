"""Kernels run on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import inspect
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None  # tests/conftest.py

# cases that take the interpreter long; smaller ones of the same tests run with the others
LONG = re.compile(
    r"mixture-(300|1500)|plain-1500|difficult_values|models_own|compiled|the_operator|values_and_gradients\[dtype1"
    r"|seven tokens|forty tokens|sixteen_bits|parts2"
    r"|3-34-4-80|2-37-10-128-0.5-(halves|interleaved-plain)|(plain-1|plain-7|plain-300)-dtype1|mixture-7-dtype0"
    r"|split, window|shared pages, window|latent_attention.36-8-16-3"
    r"|sequences_cut_into_parts.(one row|forgetful)|3-3-300-37-dtype0-True"
    r"|keys_of_whole_rows.(case0-False|case1-True)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Interpreted, the long cases are slow tests."""
    for item in items if INTERPRETED else []:
        if item.path.parent == Path(__file__).parent and LONG.search(item.name):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def loop_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter makes loop bounds of arrays of one number by int(), which numpy 2.4 refuses."""
    if not INTERPRETED:
        return
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)


builtins: dict[object, list[str]] = {}  # the names of the language's own functions in each of its modules and classes


@pytest.fixture(autouse=True)
def builtins_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call of a function inside a kernel Triton's interpreter looks through the whole language for functions that it
    has not replaced yet: a third of its time. It replaces the same ones, found once."""
    if not INTERPRETED:
        return
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    def patch(package: Any, builder: Any, scope: Any) -> None:
        if package not in builtins:
            builtins[package] = [name for name, member in inspect.getmembers(package) if is_builtin(member)]
        for name in builtins[package]:
            member = getattr(package, name)
            if is_builtin(member):
                interpreter._patch_attr(package, name, member, builder, scope)

    monkeypatch.setattr(interpreter, "_patch_builtin", patch)
