"""Words of LLVM's language that the tiles and the program share; llvmlite writes them down and compiles them."""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir

Value = Any  # a value of the compiled program; llvmlite has no types

LANES = 4
OCTETS_OF_VECTOR = 16
LONG, INT, BYTE, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.FloatType()
VECTOR, OCTETS = ir.VectorType(FLOAT, LANES), ir.VectorType(BYTE, OCTETS_OF_VECTOR)
FLOATS, VECTORS, BYTES = FLOAT.as_pointer(), VECTOR.as_pointer(), BYTE.as_pointer()


def long(number: int) -> Value:
    """A constant of 64 bits."""
    return ir.Constant(LONG, number)


def repeated(kind: Value, number: float) -> Value:
    """A constant vector of equal numbers."""
    return ir.Constant(kind, [number] * kind.count)


def shuffle(build: Value, left: Value, right: Value, places: list[int]) -> Value:
    """The elements at `places` of two vectors, those of the second counted on from the first's."""
    return build.shuffle_vector(left, right, ir.Constant(ir.VectorType(INT, len(places)), places))


def splat(build: Value, number: Value) -> Value:
    """A vector that holds `number` in every lane."""
    one = build.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(INT, 0))
    return shuffle(build, one, one, [0] * LANES)


def load_vector(build: Value, floats: Value, at: Value) -> Value:
    """Four floats from the `at`-th on."""
    return build.load(build.bitcast(build.gep(floats, [at]), VECTORS), align=4)


def store_vector(build: Value, vector: Value, floats: Value, at: Value) -> None:
    """Write four floats from the `at`-th on."""
    build.store(vector, build.bitcast(build.gep(floats, [at]), VECTORS), align=4)


def smaller(build: Value, left: Value, right: Value) -> Value:
    """The smaller of two integers."""
    return build.select(build.icmp_signed("<", left, right), left, right)


def call(build: Value, name: str, result: Value, *arguments: Value) -> Value:
    """Call a function that is not part of the program."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = build.module.globals.get(name) or ir.Function(build.module, kind, name)
    return build.call(function, arguments)


def fused(build: Value, left: Value, right: Value, added: Value) -> Value:
    """left · right + added, rounded once."""
    return call(build, "llvm.fma.v4f32", VECTOR, left, right, added)


def prefetch(build: Value, place: Value, level: int) -> None:
    """Ask for a line of memory that will be read soon: into the first or the second level of the cache."""
    flags = (0, 4 - level, 1)  # to read; how near; data
    call(
        build,
        "llvm.prefetch.p0",
        ir.VoidType(),
        build.bitcast(place, BYTES),
        *(ir.Constant(INT, flag) for flag in flags),
    )


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


def compiled(module: ir.Module, function: str) -> tuple[Any, int]:
    """What keeps the compiled program alive, and the address of its function."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    parsed = binding.parse_assembly(str(module))
    passes = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    engine = binding.create_mcjit_compiler(parsed, target)
    engine.finalize_object()
    return engine, engine.get_function_address(function)
