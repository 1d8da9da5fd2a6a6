"""What samplers on other machines need of the user's: the files of environments and tools (`file.py:Name`, `tools.py`).

Such files travel as bytes, and lie there in a folder of their own, below which they keep their paths:

    /home/me/sums.py:Sums   →   FOLDER/home/me/sums.py:Sums

Names of task kinds keep their order so, on which the stream of tasks depends (envs/mix.py). What an environment reads besides (a
file of tasks) does not travel: it must lie on every machine under the same path, with the same content, as a shared file system
has it. Nor does this package: every machine has the same. Both are checked before anything is sampled.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ingot.envs.config import TaskMixConfig
from ingot.workspace.errors import CheckFailed
from ingot.workspace.outside import FILE_SPEC, anchor, digests

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Shipment:
    """Mixtures of tasks, and tools, as plain data; bytes of files by path; fingerprints of what tasks read, and the package."""

    mixes: list[dict[str, Any]]
    tools: tuple[str, ...]
    files: Mapping[str, bytes]
    read: Mapping[str, str]
    package: str

    @classmethod
    def pack(cls, mixes: Sequence[TaskMixConfig], tools: Sequence[str]) -> Shipment:
        """What these need."""
        plain = [tasks.model_dump(mode="json") for tasks in mixes]
        named = tuple(str(Path(name).resolve()) if name.endswith(".py") else anchor(name, Path()) for name in tools)
        paths = {found[1] for spec in digests([*plain, *named]) if (found := FILE_SPEC.fullmatch(spec))}
        paths |= {name for name in named if name.endswith(".py")}
        files = {path: Path(path).read_bytes() for path in sorted(paths)}
        read = {name: digest for tasks in mixes for name, digest in tasks.outside().items()}
        return cls(plain, named, files, read, package_sha256())

    def unpack(self, folder: Path) -> tuple[list[TaskMixConfig], tuple[str, ...]]:
        """The mixtures and tools on this machine, with their files below `folder`; a CheckFailed if something is missing."""
        machine = platform.node()
        if package_sha256() != self.package:
            problem = f"{machine} has another version of ingot than the learner, in {PACKAGE}"
            raise CheckFailed(problem, place="ray", fix="install the same version on every machine")
        moved = {path: folder / path.lstrip("/") for path in self.files}
        for path, there in moved.items():
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(self.files[path])
        try:
            mixes = [TaskMixConfig.model_validate(_move(tasks, moved)) for tasks in self.mixes]
        except ValidationError as error:
            problems = "; ".join(each["msg"] for each in error.errors(include_url=False))
            fix = "install what they import on every machine"
            raise CheckFailed(f"{machine} cannot load the tasks: {problems}", place="ray", fix=fix) from error
        found = {name: digest for tasks in mixes for name, digest in tasks.outside().items()}
        for name, expected in self.read.items():
            if found.get(name) != expected:
                problem = f"{machine} has no such file that the tasks read, or another one"
                fix = "give an absolute path, where all machines see the same file"
                raise CheckFailed(problem, place=name, fix=fix)
        return mixes, tuple(_move(list(self.tools), moved))


def _move(value: Any, moved: Mapping[str, Path]) -> Any:
    """A JSON-like value with other paths in its `file.py:Name` and `file.py`, keys included."""
    if isinstance(value, str):
        path, colon, name = value.rpartition(":") if FILE_SPEC.fullmatch(value) else (value, "", "")
        return f"{moved[path]}{colon}{name}" if path in moved else value
    if isinstance(value, dict):
        return {_move(key, moved): _move(child, moved) for key, child in value.items()}
    return [_move(child, moved) for child in value] if isinstance(value, list) else value


@cache
def package_sha256() -> str:
    """Of all Python files of this package, with their paths in it."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
