"""The inner loops of products of a few rows, written in LLVM's language.

A tile is R rows of x times four rows of W. Its sums stay in registers while k runs over the inputs; the lines that come next are
fetched into the cache meanwhile. There are two forms, by what the four lanes of a vector stand for:

* 1, 2 or 4 rows (`write_tile`): four inputs, sum[r, o] += x[r, k … k+3] · W[o, k … k+3], and the lanes are added up at the end;
* a panel of 8 rows (`write_panel_tile`): four rows, sum[o, r … r+3] += x[r … r+3, k] · W[o, k], with x transposed before
  (`write_panel`). The processor multiplies a vector with one lane of another in one instruction, so it needs 12 loads for 32
  multiplications, and nothing is to be added up at the end.

W is read as it lies:

* float32 [O, I];
* int8 [O, I], q, with a scale per row: Σ x·q is multiplied with it at the end;
* int4, two to a byte [O, I/2]: byte j of a group of G inputs has u_j in its low half and u_{j + G/2} in its high half, and
  a weight is scale · u + minimum, both per row and group (weight_only/scheme.py).
"""

from __future__ import annotations

from llvmlite import ir

from ingot.inference.few_rows.language import (
    BYTES,
    FLOAT,
    FLOATS,
    INT,
    LANES,
    LONG,
    OCTETS,
    VECTOR,
    Loop,
    Value,
    fused,
    load_vector,
    long,
    prefetch,
    repeated,
    shuffle,
    smaller,
    splat,
    store_vector,
)
from ingot.inference.few_rows.task import OUTPUTS, PANEL, STEP, Kind

NEAR = 32  # float32 numbers of a row that are asked for ahead of their use


def as_floats(build: Value, octets: Value, quarter: int, place: int, high: int) -> Value:
    """Four of 16 bytes u as floats with the bits high·2²⁴ + u·2^(8·place): twice as fast as a conversion.

    For place 0 and high 0x4B that is 2²³ + u; for place 2, high 0x43 and u < 128 it is 128 + u; both exactly.
    """
    constants = ir.Constant(OCTETS, [0, high] + [0] * (STEP - 2))
    picked = []
    for byte in range(LANES * quarter, LANES * (quarter + 1)):
        number = [STEP, STEP, STEP, STEP + 1]  # 0, 0, 0, high: the lowest byte comes first
        number[place] = byte
        picked += number
    return build.bitcast(shuffle(build, octets, constants, picked), VECTOR)


class Row:
    """Reads one row of W from its beginning to its end."""

    def __init__(self, kind: Kind, build: Value, task: dict[str, Value], output: Value) -> None:
        self.kind, self.build = kind, build
        self.length = build.lshr(task["inputs"], long(1)) if kind == "int4" else task["inputs"]
        element = FLOATS if kind == "float32" else BYTES
        self.data = build.gep(build.inttoptr(task["weight"], element), [build.mul(self.length, output)])
        self.following = build.gep(self.data, [build.mul(self.length, long(OUTPUTS))])  # of the next tile
        groups = build.lshr(self.length, task["shift"]) if kind == "int4" else long(1)
        self.scales = build.gep(build.inttoptr(task["scales"], FLOATS), [build.mul(groups, output)])
        self.minimums = build.gep(build.inttoptr(task["minimums"], FLOATS), [build.mul(groups, output)])

    def begin(self, at: Value, group: Value) -> None:
        """Take the next step, and ask for the memory that comes soon, and that the next tile reads there."""
        build, self.at = self.build, at
        prefetch(build, build.gep(self.following, [at]), 2)
        if self.kind == "float32":
            prefetch(build, build.gep(self.data, [build.add(at, long(NEAR))]), 1)
            return
        octets = build.load(build.bitcast(build.gep(self.data, [at]), OCTETS.as_pointer()), align=1)
        if self.kind == "int8":
            self.octets = [build.xor(octets, repeated(OCTETS, 128))]  # q + 128
            return
        self.octets = [build.and_(octets, repeated(OCTETS, 15)), build.lshr(octets, repeated(OCTETS, 4))]
        scale, minimum = build.load(build.gep(self.scales, [group])), build.load(build.gep(self.minimums, [group]))
        base = build.fsub(minimum, build.fmul(scale, ir.Constant(FLOAT, 128.0)))  # as_floats gives 128 + u
        self.scale, self.base = splat(build, scale), splat(build, base)

    def read(self, part: int) -> Value:
        """Four weights of this step: of int4 parts 0 to 3 are low halves of bytes, 4 to 7 high halves."""
        build, quarter = self.build, part % LANES
        if self.kind == "float32":
            return load_vector(build, self.data, build.add(self.at, long(LANES * part)))
        octets = self.octets[part // LANES]
        if self.kind == "int8":
            return build.fsub(as_floats(build, octets, quarter, 0, 0x4B), repeated(VECTOR, 2.0**23 + 128))
        return fused(build, as_floats(build, octets, quarter, 2, 0x43), self.scale, self.base)


class Steps:
    """The loop of a tile over the inputs: rows of W, sums in registers.

    with Steps(…) as steps: one step; `steps.starts` are the inputs of its parts of four, `steps.totals` what is to be added to.
    """

    def __init__(self, kind: Kind, build: Value, task: dict[str, Value], output: Value, sums: int) -> None:
        self.kind, self.build, self.task = kind, build, task
        self.rows = [Row(kind, build, task, build.add(output, long(number))) for number in range(OUTPUTS)]
        self.count = sums  # vectors of sums for each row of W

    def __enter__(self) -> Steps:
        build = self.build
        self.before, self.loop, self.after = build.block, build.append_basic_block(), build.append_basic_block()
        build.branch(self.loop)
        build.position_at_end(self.loop)
        self.at = build.phi(LONG)
        self.sums = [[build.phi(VECTOR) for _ in range(self.count)] for _ in range(OUTPUTS)]
        self.totals = [list(own) for own in self.sums]
        shift, group, begins = self.task["shift"], build.lshr(self.at, self.task["shift"]), [self.at]
        if self.kind == "int4":  # byte j of group g has the inputs g·G + j and g·G + G/2 + j
            low = build.add(self.at, build.shl(group, shift))
            begins = [low, build.add(low, build.shl(long(1), shift))]
        self.starts = [build.add(begin, long(LANES * quarter)) for begin in begins for quarter in range(LANES)]
        for row in self.rows:
            row.begin(self.at, group)
        return self

    def __exit__(self, *_: object) -> None:
        build, following = self.build, self.build.add(self.at, long(STEP))
        self.at.add_incoming(long(0), self.before)
        self.at.add_incoming(following, self.loop)
        for sums, totals in zip(self.sums, self.totals, strict=True):
            for own, total in zip(sums, totals, strict=True):
                own.add_incoming(repeated(VECTOR, 0.0), self.before)
                own.add_incoming(total, self.loop)
        build.cbranch(build.icmp_signed("<", following, self.rows[0].length), self.loop, self.after)
        build.position_at_end(self.after)

    def finished(self, output: int, sums: Value) -> Value:
        """Sums of an output as they are written: those of int8 weights come without their scale."""
        if self.kind != "int8":
            return sums
        scale = self.build.load(self.rows[output].scales)
        return self.build.fmul(sums, splat(self.build, scale) if sums.type == VECTOR else scale)


def write_tile(kind: Kind, build: Value, task: dict[str, Value], row: Value, output: Value, rows: int) -> None:
    """out[row …, output …] of `rows` rows and four outputs."""
    x = build.inttoptr(task["x"], FLOATS)
    x_rows = [build.gep(x, [build.mul(task["inputs"], build.add(row, long(number)))]) for number in range(rows)]
    with Steps(kind, build, task, output, rows) as steps:
        for part, start in enumerate(steps.starts):
            weights = [w_row.read(part) for w_row in steps.rows]
            for number in range(rows):
                inputs = load_vector(build, x_rows[number], start)
                for other, totals in enumerate(steps.totals):
                    totals[number] = fused(build, inputs, weights[other], totals[number])
    out = build.gep(build.inttoptr(task["out"], FLOATS), [build.add(build.mul(row, task["outputs"]), output)])
    for other, totals in enumerate(steps.totals):
        for number in range(rows):
            lanes = [build.extract_element(totals[number], ir.Constant(INT, lane)) for lane in range(LANES)]
            total = build.fadd(build.fadd(lanes[0], lanes[1]), build.fadd(lanes[2], lanes[3]))
            place = build.add(build.mul(task["outputs"], long(number)), long(other))
            build.store(steps.finished(other, total), build.gep(out, [place]))


def transposed(build: Value, vectors: list[Value]) -> list[Value]:
    """The columns of four vectors of four."""
    first, second, third, fourth = vectors
    halves = [
        (shuffle(build, first, second, places), shuffle(build, third, fourth, places))
        for places in ([0, 4, 1, 5], [2, 6, 3, 7])
    ]
    return [shuffle(build, *half, places) for half in halves for places in ([0, 1, 4, 5], [2, 3, 6, 7])]


def _rows_of(build: Value, task: dict[str, Value], name: str, width: str, panel: Value) -> list[Value]:
    """The rows of x or out that a panel has; where these are fewer than eight, the last one stands for the missing."""
    start, last = build.mul(panel, long(PANEL)), build.sub(task["rows"], long(1))
    rows = [smaller(build, build.add(start, long(number)), last) for number in range(PANEL)]
    return [build.gep(build.inttoptr(task[name], FLOATS), [build.mul(row, task[width])]) for row in rows]


def _panel_of(build: Value, task: dict[str, Value], panel: Value) -> Value:
    size = build.mul(task["inputs"], long(PANEL))
    return build.gep(build.inttoptr(task["panels"], FLOATS), [build.mul(panel, size)])


def write_panel(build: Value, task: dict[str, Value], panel: Value, first: Value, last: Value) -> None:
    """Eight rows of x, transposed to [I, 8]: the inputs from 4 · first to 4 · last."""
    x_rows, out = _rows_of(build, task, "x", "inputs", panel), _panel_of(build, task, panel)
    with Loop(build, first, last) as four:
        at = build.mul(four, long(LANES))
        for half in range(0, PANEL, LANES):
            columns = transposed(build, [load_vector(build, row, at) for row in x_rows[half : half + LANES]])
            for lane, column in enumerate(columns):
                place = build.add(build.mul(build.add(at, long(lane)), long(PANEL)), long(half))
                store_vector(build, column, out, place)


def write_panel_tile(kind: Kind, build: Value, task: dict[str, Value], panel: Value, output: Value) -> None:
    """out[…, output …] of the rows of a panel and four outputs."""
    x, halves = _panel_of(build, task, panel), range(PANEL // LANES)
    with Steps(kind, build, task, output, len(halves)) as steps:
        for part, start in enumerate(steps.starts):
            weights = [w_row.read(part) for w_row in steps.rows]
            for lane in range(LANES):
                column = build.mul(build.add(start, long(lane)), long(PANEL))
                inputs = [load_vector(build, x, build.add(column, long(LANES * half))) for half in halves]
                for other, totals in enumerate(steps.totals):
                    weight = shuffle(build, weights[other], weights[other], [lane] * LANES)
                    for half in halves:
                        totals[half] = fused(build, inputs[half], weight, totals[half])
    out_rows = _rows_of(build, task, "out", "outputs", panel)
    for half in halves:
        columns = [steps.finished(other, totals[half]) for other, totals in enumerate(steps.totals)]
        rows = out_rows[LANES * half : LANES * (half + 1)]
        for row, vector in zip(rows, transposed(build, columns), strict=True):
            store_vector(build, vector, row, output)
