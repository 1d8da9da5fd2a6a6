"""The mutants of a Python file: its source with one small fault on one line.

Kinds: comparison (`<` to `<=`), arithmetic (`+` to `-`), boolean (`and` to `or`, `not x` to `x`), condition (`if x` to
`if not x`), constant (`3` to `4`, `True` to `False`), call (`min` to `max`), return (`return x` to `return None`), statement
(removed).

No mutants: annotations, decorators, docstrings, texts, what an error says, assertions (`strict=True` is one), and code that
only a type checker sees. Those prove nothing when they die, and are no fault when they live.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
OTHER_CALL = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "floor": "ceil",
    "ceil": "floor",
    "argmax": "argmin",
    "argmin": "argmax",
}
COMPILING = {"kernel", "loop", "inline", "njit", "jit"}  # decorators of functions that numba or Triton compiles
REMOVED = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """`source` is the whole file with the fault; `before` and `after` are the line it is on."""

    line: int
    first: int  # and last line of the statement it is in, without what is indented below it
    last: int
    compiled: bool  # in a function that numba compiles
    kind: str
    before: str
    after: str
    source: str


@dataclass(frozen=True)
class Edit:
    """The bytes [start, end) of the file replaced by `text`."""

    kind: str
    start: int
    end: int
    text: str


def mutants(source: str) -> list[Mutant]:
    """All mutants of a file that lie on one line, in the order of lines."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Mutant] = {}
    tree = ast.parse(source)
    statements, compiled = _statements(tree), _compiled_lines(tree)
    for edit in _Finder(data, starts).edits(tree):
        if b"\n" in data[edit.start : edit.end]:
            continue
        changed = (data[: edit.start] + edit.text.encode() + data[edit.end :]).decode()
        number = data.count(b"\n", 0, edit.start)
        before, after = source.split("\n")[number].strip(), changed.split("\n")[number].strip()
        if changed != source and _compiles(changed):
            at = number + 1
            first, last = statements.get(at, (at, at))
            found.setdefault(changed, Mutant(at, first, last, at in compiled, edit.kind, before, after, changed))
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _statements(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """The first and last line of the innermost statement of each line."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # from the outside to the inside
        if isinstance(node, ast.stmt | ast.match_case):
            body = getattr(node, "body", None)
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            last = max(body[0].lineno - 1, first) if body else getattr(node, "end_lineno", None) or first
            found.update(dict.fromkeys(range(first, last + 1), (first, last)))
    return found


def _compiled_lines(tree: ast.Module) -> set[int]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        line
        for function in functions
        for decorator in function.decorator_list
        if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] in COMPILING
        for line in range(function.lineno, (function.end_lineno or function.lineno) + 1)
    }


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder:
    """Walks a tree and yields the edits of each node."""

    def __init__(self, data: bytes, starts: list[int]) -> None:
        self.data = data
        self.starts = starts

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.Assert | ast.JoinedStr) or _only_for_types(node) or _is_strict(node):
            return
        yield from self.of(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "format_spec"):
                continue
            if isinstance(node, ast.Raise):  # what it says
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.edits(child)

    def of(self, node: ast.AST) -> Iterator[Edit]:
        """The edits of this node itself."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                operands = [left, *right]
                for operator, first, second in zip(ops, operands, operands[1:], strict=False):
                    yield from self.between("comparison", first, second, *COMPARISONS[type(operator)])
            case ast.BinOp(left=left, op=op, right=right) if not (_is_text(left) or _is_text(right)):
                if type(op) in OPERATORS:
                    yield from self.between("arithmetic", left, right, *OPERATORS[type(op)])
            case ast.BoolOp(op=op, values=values):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for first, second in pairwise(values):
                    yield from self.between("boolean", first, second, old, new)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                yield self.instead("boolean", node, self.text(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
                yield self.instead("arithmetic", node, self.text(operand))
            case ast.Constant(value=bool(value)):
                yield self.instead("constant", node, str(not value))
            case ast.Constant(value=int(value)):
                yield self.instead("constant", node, str(value + 1))
            case ast.Constant(value=float(value)):
                yield self.instead("constant", node, "1.0" if value == 0 else repr(value * 2))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function) if name in OTHER_CALL:
                end = self.end(function)
                yield Edit("call", end - len(name), end, OTHER_CALL[name])
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self.negated(test)
            case ast.comprehension(ifs=ifs):
                for test in ifs:
                    yield from self.negated(test)
            case ast.Return(value=ast.expr() as value):
                if not (isinstance(value, ast.Constant) and value.value is None):
                    yield self.instead("return", value, "None")
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield self.instead("statement", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self.instead("statement", node, "pass")
            case ast.stmt() if isinstance(node, REMOVED):
                yield self.instead("statement", node, "pass")

    def negated(self, test: ast.expr) -> Iterator[Edit]:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            yield self.instead("condition", test, f"not {self.text(test)}")

    def between(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Edit]:
        """The operator between two operands, where only spaces and brackets are beside it."""
        start, end = self.end(left), self.start(right)
        gap = self.data[start:end].decode()
        if gap.count(old) == 1:
            at = start + len(gap[: gap.index(old)].encode())
            yield Edit(kind, at, at + len(old), new)

    def instead(self, kind: str, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(kind, self.start(node), self.end(node), text)

    def text(self, node: ast.expr) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_strict(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
