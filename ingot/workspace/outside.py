"""Loads the user's own classes and functions: `file.py:Name` and `package.module:Name`; finds kinds that are data, `file.yaml`.

Wherever a recipe or a command names a kind (a task, a suite, a data step, an algorithm, a tool), it may name a class or a
function of the user's own instead. A file is loaded by its path, as the module

    ingot.workspace.outside.<path in hexadecimal>

which any process can import again, because this module finds such names (`__path__` makes it a package): classes and
functions of the file can be pickled, also into processes that are spawned. A file that has changed is loaded anew.

Invariant: what a file does is known by its bytes. `outside_sha256` is part of the hash of each stage that names the file, so
an edited file is work to do again. Hence a file can import what is installed, but not other files of its folder.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ingot.workspace.errors import RecipeError
from ingot.workspace.files import file_sha256
from ingot.workspace.nearest import suggestion

__path__: list[str] = []  # so that Python looks for modules below this one, and asks `_Finder`
FILE_SPEC = re.compile(r"([^\0\n]+\.py):([A-Za-z_]\w*)")
DATA_SPEC = re.compile(r"[^\0\n]+\.ya?ml")  # a kind that is written as data, as a suite can be
MODULE_SPEC = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_HASH = "__ingot_sha256__"
Base = TypeVar("Base")


def is_outside(spec: str) -> bool:
    """Whether `spec` has the form `file.py:Name` or `package.module:Name`."""
    return FILE_SPEC.fullmatch(spec) is not None or MODULE_SPEC.fullmatch(spec) is not None


def anchor(spec: str, folder: Path) -> str:
    """`file.py:Name` with the file's absolute path, where a relative one begins at `folder`; any other text is unchanged.

    So is `file.yaml`, if there is such a file. Words before a file's name are part of it only if there is such a file: "look at
    this.py:Name" is a sentence.
    """
    if DATA_SPEC.fullmatch(spec):
        return str((folder / spec).resolve()) if (folder / spec).is_file() else spec
    found = FILE_SPEC.fullmatch(spec)
    if found is None or (re.search(r"\s", found[1]) and not (folder / found[1]).is_file()):
        return spec
    return f"{(folder / found[1]).resolve()}:{found[2]}"


def load_outside(spec: str, folder: Path = Path(), place: str | None = None) -> Any:
    """The object that `spec` names; a relative file begins at `folder`. `place` is where the spec was written, for errors."""
    path, module, name = _parts(spec, folder, place)
    try:
        loaded = _load_file(path) if path is not None else importlib.import_module(module)
    except RecipeError:
        raise
    except Exception as error:  # code of the user's, which may raise anything when it is imported
        line = _line_of(error, path)
        where = f"{path}:{line}" if path is not None else module
        problem = f"{where} cannot be imported: {type(error).__name__}: {error}"
        fix = _source_line(path, line) or "look at the module with `python -c 'import …'`"
        raise RecipeError(problem, place=place, fix=fix) from error
    if not hasattr(loaded, name):
        fix = suggestion(name, _public(loaded), "it has")
        raise RecipeError(f"{path or module} has no {name}", place=place, fix=fix)
    return getattr(loaded, name)


def adopt(thing: Any, spec: str, base: type[Base], what: str) -> type[Base]:
    """Check that something from outside is a complete class of the family of `base`; `what` is a member of it in words."""
    if not is_kind(thing, base):
        fix = f"write class {spec.rpartition(':')[2]}({base.__name__}), with {base.__name__} from {base.__module__}"
        raise RecipeError(f"{spec} does not derive from {base.__name__}, the base class of every {what}", fix=fix)
    if missing := sorted(getattr(thing, "__abstractmethods__", ())):
        fix = f"write {_head(thing, missing[0])}"
        raise RecipeError(f"{spec} has no {' and no '.join(missing)}, which every {what} has", fix=fix)
    found: type[Base] = thing
    return found


def is_kind(thing: Any, base: type) -> bool:
    """Whether something is a class that derives from `base`."""
    return isinstance(thing, type) and issubclass(thing, base) and thing is not base


def _head(thing: type, name: str) -> str:
    """The first line of a method, as a class must write it."""
    method = getattr(thing, name)
    if isinstance(method, property):
        return f"{name} as a property"
    return f"def {name}{inspect.signature(method)}".replace("'", "")


def outside_sha256(spec: str, folder: Path = Path()) -> str:
    """The sha256 of the file that `spec` is in; a RecipeError if there is none."""
    path, module, _ = _parts(spec, folder, None)
    if path is None:
        path = module_file(module)
        if path is None:
            raise RecipeError(f"{spec}: no file of the module {module} was found", fix="is it installed?")
    return file_sha256(path)


def digests(value: Any) -> dict[str, str]:
    """The sha256 of the file of every spec in a JSON-like value, keys of mappings included, by the spec.

    Text that only looks like `package.module:Name` (`note:this`) has no file and is left out.
    """
    found = {}
    for text in _texts(value):
        if DATA_SPEC.fullmatch(text) and Path(text).is_file():
            found[text] = file_sha256(Path(text))
            continue
        module = MODULE_SPEC.fullmatch(text)
        is_file = FILE_SPEC.fullmatch(text) is not None and Path(text.rpartition(":")[0]).is_file()
        if is_file or (module is not None and module_file(module[1]) is not None):
            found[text] = outside_sha256(text)
    return found


def specs(value: Any) -> list[str]:
    """Every `file.py:Name` in a JSON-like value, whether the file is there or not."""
    return [text for text in _texts(value) if FILE_SPEC.fullmatch(text)]


def module_file(module: str) -> Path | None:
    """The file of an installed module; None if there is no such module, or it is not made of a file."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a parent that is missing, or is no package
        return None
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None


def spec_of(thing: Any) -> str:
    """The spec by which `load_outside` finds a class or a function."""
    prefix = f"{__name__}."
    if not thing.__module__.startswith(prefix):
        return f"{thing.__module__}:{thing.__qualname__}"
    return f"{_decode(thing.__module__.removeprefix(prefix))}:{thing.__qualname__}"


def spec_in_program(thing: Any) -> str:
    """The spec of a class or function that a program holds in its hands; a RecipeError if no file has it by that name.

    A program's own file is not run a second time: what it has defined so far is what the spec names.
    """
    name, module = getattr(thing, "__qualname__", repr(thing)), getattr(thing, "__module__", "")
    file = getattr(sys.modules.get(module), "__file__", None)
    if not name.isidentifier() or file is None or not Path(file).is_file():
        fix = "define it by `def` or `class` at the top level of a file"
        raise RecipeError(f"no file has {name} under that name, by which another process could load it", fix=fix)
    if "." in module:  # of a package, or loaded from a file by this module
        return spec_of(thing)
    path = Path(file).resolve()
    if module == "__main__":
        main = sys.modules["__main__"]
        setattr(main, _HASH, file_sha256(path))
        sys.modules[f"{__name__}.{_encode(path)}"] = main
    return f"{path}:{name}"


def raised_at(error: BaseException, spec: str) -> str:
    """The line of a spec's file at which an exception passed through it: `file.py:LINE`; the spec if it did not."""
    path, _, _ = _parts(spec, Path(), None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else spec


def is_from_outside(thing: type) -> bool:
    """Whether a class is not of this package."""
    package = __name__.partition(".")[0]
    return thing.__module__.partition(".")[0] != package or thing.__module__.startswith(f"{__name__}.")


def _parts(spec: str, folder: Path, place: str | None) -> tuple[Path | None, str, str]:
    """The file of a spec, or None and its module; and the name."""
    if found := FILE_SPEC.fullmatch(spec):
        path = (folder / found[1]).resolve()
        if not path.is_file():
            fix = "write the path from the folder of the recipe that names it"
            raise RecipeError(f"there is no file {path}", place=place, fix=fix)
        return path, "", found[2]
    if found := MODULE_SPEC.fullmatch(spec):
        return None, found[1], found[2]
    raise RecipeError(f"{spec!r} names nothing", place=place, fix="write file.py:Name or package.module:Name")


def _load_file(path: Path) -> ModuleType:
    """The module of a file, from memory if its bytes are those that were loaded."""
    name, digest = f"{__name__}.{_encode(path)}", file_sha256(path)
    known = sys.modules.get(name)
    if known is not None and getattr(known, _HASH, None) == digest:
        return known
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    loaded = importlib.import_module(name)
    setattr(loaded, _HASH, digest)
    return loaded


def _encode(path: Path) -> str:
    return str(path).encode().hex()


def _decode(name: str) -> Path:
    return Path(bytes.fromhex(name).decode())


class _Finder:
    """Finds the modules below this one, by the path in their names."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Python's question for a module (importlib.abc.MetaPathFinder)."""
        if not name.startswith(f"{__name__}."):
            return None
        try:
            file = _decode(name.removeprefix(f"{__name__}."))
        except ValueError:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles from the bytes that are there: a cached compilation is known by seconds, and an edit may be faster."""

    def get_code(self, fullname: str) -> Any:
        """The file, compiled."""
        return self.source_to_code(self.get_data(self.path), self.path)


sys.meta_path.append(_Finder)


def _line_of(error: BaseException, path: Path | None) -> int:
    """The line of the file at which its import failed."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines and lines[-1] else 1


def _source_line(path: Path | None, line: int) -> str | None:
    """The line itself, as the fix to look at."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path is not None else []
    return f"look at line {line}: {lines[line - 1].strip()}" if 0 < line <= len(lines) else None


def _public(module: ModuleType) -> list[str]:
    """The names that a module defines itself, or all that it has."""
    names = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = [name for name, value in names.items() if getattr(value, "__module__", None) == module.__name__]
    return own or list(names)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _texts(key)
            yield from _texts(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(child)


def without_paths(value: Any) -> Any:
    """A JSON-like value in which a spec's file has no folder: what is the same work has the same hash wherever it lies."""
    if isinstance(value, str):
        if DATA_SPEC.fullmatch(value) and Path(value).is_absolute():
            return Path(value).name
        found = FILE_SPEC.fullmatch(value)
        return f"{Path(found[1]).name}:{found[2]}" if found and Path(found[1]).is_absolute() else value
    if isinstance(value, dict):
        return {without_paths(key): without_paths(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(child) for child in value]
    return value
