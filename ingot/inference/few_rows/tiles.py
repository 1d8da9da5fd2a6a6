"""The inner loops of products of a few rows, written in LLVM's language and compiled when they are first needed.

A tile is R rows of x times O rows of W. Its R·O vectors of four sums stay in registers while k runs over the inputs,

    sum[r, o] += x[r, k … k+3] · W[o, k … k+3],

and the lines of the tile after it are fetched into the cache meanwhile. W is read as it lies:

* float32 [O, I];
* int8 [O, I], q, with a scale per row: Σ x·q is multiplied with it at the end;
* int4, two to a byte [O, I/2]: byte j of a group of G inputs has u_j in its low half and u_{j + G/2} in its high half, and
  a weight is scale · u + minimum, both per row and group (weight_only/scheme.py).

`compile_loops` makes void f(int64 *task), which every thread of a team calls with the same task (task.py).
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir

from ingot.inference.few_rows.task import OUTPUTS, STEP, TASK, TEAM_SIZE, THREAD_NUMBER, Kind

Value = Any  # a value of the compiled program; llvmlite has no types

TILES = ((8, 2), (4, 4), (2, 4), (1, 4))  # rows and outputs: at most 16 sums, so that all fit with what is multiplied
LANES = 4

LONG, INT, BYTE, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.FloatType()
VECTOR, OCTETS = ir.VectorType(FLOAT, LANES), ir.VectorType(BYTE, STEP)
FLOATS, VECTORS, BYTES = FLOAT.as_pointer(), VECTOR.as_pointer(), BYTE.as_pointer()


def long(number: int) -> Value:
    """A constant of 64 bits."""
    return ir.Constant(LONG, number)


def repeated(kind: Value, number: float) -> Value:
    """A constant vector of equal numbers."""
    return ir.Constant(kind, [number] * kind.count)


def splat(build: Value, number: Value) -> Value:
    """A vector that holds `number` in every lane."""
    one = build.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(INT, 0))
    return build.shuffle_vector(one, one, repeated(ir.VectorType(INT, LANES), 0))


def call(build: Value, name: str, result: Value, *arguments: Value) -> Value:
    """Call a function that is not part of the program."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = build.module.globals.get(name) or ir.Function(build.module, kind, name)
    return build.call(function, arguments)


def fused(build: Value, left: Value, right: Value, added: Value) -> Value:
    """left · right + added, rounded once."""
    return call(build, "llvm.fma.v4f32", VECTOR, left, right, added)


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
    bits = build.shuffle_vector(octets, constants, ir.Constant(ir.VectorType(INT, STEP), picked))
    return build.bitcast(bits, VECTOR)


class Row:
    """Reads one row of W from its beginning to its end."""

    def __init__(self, kind: Kind, build: Value, task: dict[str, Value], output: Value) -> None:
        self.kind, self.build = kind, build
        self.length = build.lshr(task["inputs"], long(1)) if kind == "int4" else task["inputs"]
        element = FLOATS if kind == "float32" else BYTES
        self.data = build.gep(build.inttoptr(task["weight"], element), [build.mul(self.length, output)])
        self.ahead = build.gep(self.data, [build.mul(self.length, long(OUTPUTS))])
        groups = build.lshr(self.length, task["shift"]) if kind == "int4" else long(1)
        self.scales = build.gep(build.inttoptr(task["scales"], FLOATS), [build.mul(groups, output)])
        self.minimums = build.gep(build.inttoptr(task["minimums"], FLOATS), [build.mul(groups, output)])

    def begin(self, at: Value, group: Value) -> None:
        """Take the next step, and ask for the memory that the next tile reads there."""
        build, self.at = self.build, at
        place, flags = build.bitcast(build.gep(self.ahead, [at]), BYTES), (0, 2, 1)  # to read; second level; data
        call(build, "llvm.prefetch.p0", ir.VoidType(), place, *(ir.Constant(INT, flag) for flag in flags))
        if self.kind == "float32":
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
            place = build.gep(self.data, [build.add(self.at, long(LANES * part))])
            return build.load(build.bitcast(place, VECTORS), align=4)
        octets = self.octets[part // LANES]
        if self.kind == "int8":
            return build.fsub(as_floats(build, octets, quarter, 0, 0x4B), repeated(VECTOR, 2.0**23 + 128))
        return fused(build, as_floats(build, octets, quarter, 2, 0x43), self.scale, self.base)


def write_tile(
    kind: Kind, build: Value, task: dict[str, Value], row: Value, output: Value, rows: int, outputs: int
) -> None:
    """out[row …, output …] of `rows` rows and `outputs` outputs."""
    x = build.gep(build.inttoptr(task["x"], FLOATS), [build.mul(row, task["inputs"])])
    x_rows = [build.gep(x, [build.mul(task["inputs"], long(number))]) for number in range(rows)]
    w_rows = [Row(kind, build, task, build.add(output, long(number))) for number in range(outputs)]
    before, loop, after = build.block, build.append_basic_block(), build.append_basic_block()
    build.branch(loop)
    build.position_at_end(loop)
    at = build.phi(LONG)
    sums = [[build.phi(VECTOR) for _ in range(outputs)] for _ in range(rows)]
    group = build.lshr(at, task["shift"])
    starts = [at]
    if kind == "int4":  # byte j of group g has the inputs g·G + j and g·G + G/2 + j
        low = build.add(at, build.shl(group, task["shift"]))
        starts = [low, build.add(low, build.shl(long(1), task["shift"]))]
    for w_row in w_rows:
        w_row.begin(at, group)
    totals = [list(row) for row in sums]
    for part in range(LANES * len(starts)):
        weights = [w_row.read(part) for w_row in w_rows]
        start = build.add(starts[part // LANES], long(LANES * (part % LANES)))
        for number in range(rows):
            inputs = build.load(build.bitcast(build.gep(x_rows[number], [start]), VECTORS), align=4)
            for other in range(outputs):
                totals[number][other] = fused(build, inputs, weights[other], totals[number][other])
    following = build.add(at, long(STEP))
    at.add_incoming(long(0), before)
    at.add_incoming(following, loop)
    for number in range(rows):
        for other in range(outputs):
            sums[number][other].add_incoming(repeated(VECTOR, 0.0), before)
            sums[number][other].add_incoming(totals[number][other], loop)
    build.cbranch(build.icmp_signed("<", following, w_rows[0].length), loop, after)
    build.position_at_end(after)
    out = build.gep(build.inttoptr(task["out"], FLOATS), [build.add(build.mul(row, task["outputs"]), output)])
    for number in range(rows):
        for other in range(outputs):
            lanes = [build.extract_element(totals[number][other], ir.Constant(INT, lane)) for lane in range(LANES)]
            total = build.fadd(build.fadd(lanes[0], lanes[1]), build.fadd(lanes[2], lanes[3]))
            if kind == "int8":
                total = build.fmul(total, build.load(w_rows[other].scales))
            build.store(total, build.gep(out, [build.add(build.mul(task["outputs"], long(number)), long(other))]))


class Loop:
    """with Loop(build, first, last, step) as index: what is written inside runs while index + step ≤ last."""

    def __init__(self, build: Value, first: Value, last: Value, step: int = 1) -> None:
        self.build, self.first, self.last, self.step = build, first, last, step

    def __enter__(self) -> Value:
        build = self.build
        before, self.head = build.block, build.append_basic_block()
        body, self.after = build.append_basic_block(), build.append_basic_block()
        build.branch(self.head)
        build.position_at_end(self.head)
        self.index = build.phi(LONG)
        self.index.add_incoming(self.first, before)
        self.following = build.add(self.index, long(self.step))
        build.cbranch(build.icmp_signed("<=", self.following, self.last), body, self.after)
        build.position_at_end(body)
        return self.index

    def __exit__(self, *_: object) -> None:
        self.index.add_incoming(self.following, self.build.block)
        self.build.branch(self.head)
        self.build.position_at_end(self.after)


def write_loops(kind: Kind) -> ir.Module:
    """The program: a thread goes through its share of the outputs, and for each few of them through all rows."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [LONG.as_pointer()]), "run")
    build = ir.IRBuilder(function.append_basic_block())
    task = {name: build.load(build.gep(function.args[0], [long(place)])) for place, name in enumerate(TASK)}
    thread, threads = (build.zext(call(build, name, INT), LONG) for name in (THREAD_NUMBER, TEAM_SIZE))
    groups = build.sdiv(build.add(task["outputs"], long(OUTPUTS - 1)), long(OUTPUTS))
    first = build.sdiv(build.mul(groups, thread), threads)
    last = build.sdiv(build.mul(groups, build.add(thread, long(1))), threads)
    with Loop(build, first, last) as group:
        output, limit = build.mul(group, long(OUTPUTS)), build.sub(task["outputs"], long(OUTPUTS))
        # the last group may compute some outputs again
        output = build.select(build.icmp_signed("<", output, limit), output, limit)
        start = long(0)
        for rows, outputs in TILES:
            with Loop(build, start, task["rows"], rows) as row:
                for part in range(0, OUTPUTS, outputs):
                    write_tile(kind, build, task, row, build.add(output, long(part)), rows, outputs)
            start = row  # where the rows that are left begin
    build.ret_void()
    return module


def compile_loops(kind: Kind) -> tuple[Any, int]:
    """What keeps the compiled program alive, and the address of its function."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(str(write_loops(kind)))
    passes = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    engine = binding.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine, engine.get_function_address("run")
