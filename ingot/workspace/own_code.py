"""Writes functions and classes that only a running program has into files, so that any process can load them as `file.py:Name`.

A function at the top of a module is named by the module's file as it stands. One of a notebook, of a script that is running or of
another function has no file that could be loaded without running the program again. Its source becomes a file of its own, with

    modules of installed packages that it names, and what they define     as imports
    functions and classes of the program that it names                    by their source, too
    numbers, texts, patterns, and lists and mappings of them              as they are now

Invariant: the file's name has the hash of its content, and the content is all that the function does: the same code is the same
work, an edited function (or number that it names) is other work, and a changed line elsewhere in the program is none.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import hashlib
import importlib
import importlib.metadata
import inspect
import linecache
import re
import symtable
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ingot.workspace.errors import RecipeError
from ingot.workspace.files import write_text
from ingot.workspace.outside import spec_in_program

FUTURE = __future__.annotations.compiler_flag
INNER = ("__func__", "fget", "func")  # where a class method, a property and a cached property keep their function
IN_A_FILE = "put it into a file of its own and give that: file.py:Name"


def name_code(thing: Any, folder: Path) -> str:
    """The `file.py:Name` or `module:Name` of a function or class; its file is written to `folder` where it has none."""
    if not isinstance(thing, FunctionType | type):
        fix = "write a function by `def` that calls it"
        raise RecipeError(f"{thing!r:.80} ({type(thing).__name__}) is neither a function nor a class", fix=fix)
    module = sys.modules.get(thing.__module__)
    if module is not None and thing.__module__ != "__main__" and getattr(module, thing.__qualname__, None) is thing:
        return spec_in_program(thing)
    text = _Writer(thing).text()
    path = folder / f"{thing.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    if not path.is_file():
        write_text(path, text)
    return f"{path.resolve()}:{thing.__name__}"


class _Writer:
    """The file of one function or class, put together."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.imports: dict[str, str] = {}  # statements by the name that they bind
        self.values: dict[str, str] = {}
        self.sources: dict[str, str] = {}  # of functions and classes, in the order in which they need each other
        self.begun: dict[str, Any] = {}
        self.future = False
        self._define(thing)

    def text(self) -> str:
        """The file."""
        head = [f"# {self.thing.__name__}, as the program had it that trained with it"]
        head += ["from __future__ import annotations"] if self.future else []
        blocks = ["\n".join(head), "\n".join(sorted({*self.imports.values()})), "\n".join(self.values.values())]
        return "\n\n".join([block for block in [*blocks, *self.sources.values()] if block]) + "\n"

    def _define(self, thing: Any) -> None:
        """Take over the source of a function or class, after all that it names."""
        name = thing.__name__
        if name in self.begun:
            if self.begun[name] is not thing:
                raise self._refusal(f"two things are called {name}", "give one of them another name")
            return
        self.begun[name] = thing
        source, flags = self._source(thing)
        self.future |= bool(flags & FUTURE)
        known = _namespace(thing)
        for used in sorted(_global_names(source)):
            if used in known and used != name:
                self._take(used, known[used])
        self.sources[name] = source

    def _take(self, name: str, value: Any) -> None:
        """Make what the code calls `name` be there."""
        if isinstance(value, ModuleType):
            if not _is_installed(value.__name__):
                fix = f"write `from {value.__name__} import …` for what it needs"
                raise self._refusal(f"it uses {name}, a module of files of yours", fix)
            self.imports[name] = f"import {value.__name__} as {name}" if name != value.__name__ else f"import {name}"
        elif isinstance(value, FunctionType | type) and not _is_installed(value.__module__):
            self._define(value)
            if value.__name__ != name:
                self.sources[f"{name} ="] = f"{name} = {value.__name__}"
        elif (found := _import_of(value)) is not None:
            module, there = found
            self.imports[name] = f"from {module} import {there}" + (f" as {name}" if there != name else "")
        elif isinstance(value, re.Pattern):
            self.imports["re"] = "import re"
            self.values[name] = f"{name} = re.compile({value.pattern!r}, {value.flags})"
        elif _is_literal(value):
            self.values[name] = f"{name} = {value!r}"
        else:
            kind = type(value).__name__
            raise self._refusal(
                f"it uses {name}, a {kind}, which has no source", f"make {name} inside it, or {IN_A_FILE}"
            )

    def _source(self, thing: Any) -> tuple[str, int]:
        """The text of a definition with its decorators, and the flags with which it was compiled."""
        if thing.__name__ == "<lambda>":
            raise self._refusal("a lambda has no source of its own", "write it by `def`")
        code = _code_of(thing)
        text = "" if code is None else "".join(linecache.getlines(code.co_filename))
        found = None if code is None else _definition(text, thing.__name__, code.co_firstlineno)
        if code is None or found is None:
            raise self._refusal(f"the source of {thing.__name__} is not known", IN_A_FILE)
        first = min([found.lineno, *(each.lineno for each in found.decorator_list)])
        lines = text.splitlines()[first - 1 : found.end_lineno]
        return textwrap.dedent("\n".join(lines)), code.co_flags

    def _refusal(self, problem: str, fix: str) -> RecipeError:
        return RecipeError(f"{self.thing.__name__} cannot be written into a file: {problem}", fix=fix)


def _functions(thing: Any) -> list[FunctionType]:
    """A function; or the functions of a class, those of its properties and class methods too."""
    if isinstance(thing, FunctionType):
        return [inspect.unwrap(thing)]
    members = [each for each in vars(thing).values() if not isinstance(each, type)]
    inner = [next((got for name in INNER if (got := getattr(each, name, None)) is not None), each) for each in members]
    return [inspect.unwrap(each) for each in inner if isinstance(each, FunctionType)]


def _code_of(thing: Any) -> CodeType | None:
    """The code of a function, or of some method of a class: it knows its file and line."""
    if isinstance(thing, FunctionType):
        return _functions(thing)[0].__code__
    own = [each for each in _functions(thing) if each.__qualname__.startswith(f"{thing.__qualname__}.")]
    return own[0].__code__ if own else None


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definition(text: str, name: str, line: int) -> Definition | None:
    """The innermost definition of this name around a line."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Definition)
        and node.name == name
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _global_names(source: str) -> set[str]:
    """The names that a definition looks up outside of itself."""
    return set(_names_of(symtable.symtable(source, "definition", "exec")))


def _names_of(table: symtable.SymbolTable) -> Iterator[str]:
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_global() or (outermost and symbol.is_referenced()):
            yield symbol.get_name()
    for inside in table.get_children():
        yield from _names_of(inside)


def _namespace(thing: Any) -> Mapping[str, Any]:
    """What the names in a function or class stand for: those of its module, and of functions around it."""
    known = dict(vars(sys.modules[thing.__module__])) if thing.__module__ in sys.modules else {}
    for each in _functions(thing):
        known |= each.__globals__
        for name, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
            if name != "__class__":
                known[name] = cell.cell_contents
    return {name: value for name, value in known.items() if getattr(builtins, name, known) is not value}


def _is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python or an installed package, which another process has too."""
    top = (module or "__main__").partition(".")[0]
    if top == "__main__":  # also where that is a program of an installed package, such as a notebook's kernel
        return False
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
        return True
    return file is not None and top in importlib.metadata.packages_distributions()  # one that is installed as editable


def _import_of(value: Any) -> tuple[str, str] | None:
    """The module and the name by which an import finds this very thing."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not name.isidentifier() or not _is_installed(module):
        return None
    return (module, name) if getattr(importlib.import_module(module), name, None) is value else None


def _is_literal(value: Any) -> bool:
    """Whether Python's spelling of a value gives the value back."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
