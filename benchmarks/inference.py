"""Sampling speed: Ingot's engine and transformers on the same weights, in turns on the same machine.

    python benchmarks/inference.py [--device cpu|cuda] [--cases batches,continuous,…] [--quick] [--threads N]

| case       | what                                                              | beside                         |
|------------|-------------------------------------------------------------------|--------------------------------|
| batches    | prompts of 32 tokens, greedy, at batch 1 and 8, on a GPU also 64   | transformers' generate         |
|            |                                                                   | (on a CPU eager and compiled)  |
| experts    | the same at batch 1, 2, 4 and 8 for layers of Qwen3-30B-A3B (GPU)  | generate with `batched_mm`,    |
|            |                                                                   | at 1 and 8 also compiled       |
| rl         | groups of samples that end at different times                     | transformers' generate         |
| continuous | 256 prompts of 16 to 512 tokens, 256 new tokens each (GPU)         | transformers' generate_batch   |
| decode     | 64 sequences of 300 to 4,000 tokens (GPU)                          | memory bandwidth               |
| group      | 16 samples of one prompt of 2,048 tokens                           | the same with the prompt known |
| update     | new weights for 1.2B parameters while 32 requests run (GPU)        | 50 ms                          |
| float8     | 1.2B, and 8 layers of 8B, in float8 and in 8 bits: steps of 16 to  | the same engine in bfloat16    |
|            | 1,024 sequences, prompts, memory; and linear layers alone (GPU)    |                                |

But for `experts`, `update` and `float8` the model has the shape of SmolLM2-135M (30 layers, width 576, 9 query and 3 key heads,
vocabulary 49,152) and random weights, the same on both sides, with QK-norm on a CPU, as the quickstart has it. Both sides have
one round to warm up and then as many rounds; sampling is the same (temperature 1, nothing cut off). Tokens per second count the
tokens asked for, prompts read included in the time. Bandwidth: all weights and the keys and values of all sequences, read once a
step, at 4.3 TB/s (what a copy reaches on an H200). A line of a linear layer, "2048 to 16384, 256: 2.1 + 9.7", is inputs, outputs,
rows, and the µs of the cast and of the product in float8.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ingot.checkpoints.convert import export_model
from ingot.inference.engine import Engine
from ingot.inference.quantised.layers import Float8Linear
from ingot.inference.quantised.pack import Bits, pack_float8, quantise_for_sampling, stored_bytes
from ingot.inference.sampling import Sampling
from ingot.kernels.quantised.float8 import cast_rows, multiply_cast
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.linear import Linear
from ingot.model.transformer import Transformer
from ingot.train.device import FLOAT8

VOCABULARY, CONTEXT = 49_152, 8192
BANDWIDTH = 4.3e12  # bytes a second
CACHED = 5e8  # bytes of weights after which none of them is in the second-level cache any more
ROUNDS = 3
Row = dict[str, Any]


def make_ours(
    device: str,
    dtype: torch.dtype,
    *,
    width: int = 576,
    depth: int = 30,
    inner: int = 1536,
    key_share: int = 3,
    drawn: bool = True,
) -> Transformer:
    """Not `drawn`: with the weights that the parts draw on the device, which is faster for a large model."""
    heads: Row = {"heads": width // 64, "key_value_heads": width // 64 // key_share, "head_width": 64}
    heads |= {"query_key_norm": "head"} if device == "cpu" else {}
    config = {
        "vocabulary_size": VOCABULARY,
        "width": width,
        "blocks": {"layer": {"mixer": heads, "feed_forward": {"width": inner}}},
        "layers": f"layer*{depth}",
        "context": CONTEXT,
    }
    if not drawn:
        with torch.device(device):
            return Transformer(ModelConfig.model_validate(config)).to(dtype).eval()
    model = Transformer(ModelConfig.model_validate(config))
    initialise(model, seed=0)
    return model.to(device, dtype)


def make_mixture(layers: int) -> Transformer:
    """Some layers of Qwen3-30B-A3B: 128 experts, 8 of them active, 0.6B weights each."""
    mixer: Row = {"heads": 32, "key_value_heads": 4, "head_width": 128, "query_key_norm": "head"}
    feed_forward: Row = {"kind": "moe", "experts": 128, "active": 8, "expert": {"width": 768}}
    config = {
        "vocabulary_size": VOCABULARY,
        "width": 2048,
        "blocks": {"layer": {"mixer": mixer, "feed_forward": feed_forward}},
        "layers": f"layer*{layers}",
        "context": CONTEXT,
    }
    with torch.device("cuda"):  # the weights that the parts draw there: `initialise` would draw them on the host
        return Transformer(ModelConfig.model_validate(config)).to(torch.bfloat16)


def make_peer(model: Transformer, device: str, dtype: torch.dtype, **options: Any) -> Any:
    """The same weights in transformers."""
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        export_model(model, Path(folder) / "peer")
        peer = AutoModelForCausalLM.from_pretrained(Path(folder) / "peer", dtype=dtype, **options)
    for config in (peer.config, peer.generation_config):
        config.bos_token_id = config.eos_token_id = None
        config.pad_token_id = 0
    return peer.eval().to(device)


class Bench:
    """Both models and how they are run."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.ours = make_ours(device, self.dtype)
        self.random = random.Random(0)
        self._peer: Any = None

    @property
    def peer(self) -> Any:
        if self._peer is None:
            self._peer = make_peer(self.ours, self.device, self.dtype)
        return self._peer

    def prompt(self, length: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(length)]

    def prompts(self, lengths: Sequence[int], copies: int = 1) -> list[list[int]]:
        return [prompt for prompt in map(self.prompt, lengths) for _ in range(copies)]

    def seconds(self, function: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        function()
        self.wait()
        return time.perf_counter() - start

    def best(self, functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
        """The best time of each; they take turns, so that a busy machine is busy for both. The first round warms up."""
        best = [float("inf")] * len(functions)
        for _ in range(repeats + 1):
            for index, function in enumerate(functions):
                best[index] = min(best[index], self.seconds(function))
        return best

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


Prompts = Callable[[], list[list[int]]]  # new ones at every call: nothing is left over from the round before


def sample(engine: Engine, prompts: Prompts, counts: list[int], temperature: float) -> None:
    samplings = [Sampling(max_new_tokens=size, temperature=temperature, seed=seed) for seed, size in enumerate(counts)]
    completions = engine.complete(prompts(), samplings)
    assert [len(each.tokens) for each in completions] == counts


def generate(model: Any, prompts: Prompts, counts: list[int], temperature: float, **options: Any) -> None:
    """One batch, until its longest request has its tokens."""
    ids = torch.tensor(prompts(), device=model.device)
    sampled: Row = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    sampled |= {"max_new_tokens": max(counts), "min_new_tokens": max(counts), "pad_token_id": 0}
    model.generate(ids, attention_mask=torch.ones_like(ids), **sampled, **options)


def generate_compiled(model: Any, prompts: Prompts, counts: list[int]) -> None:
    """The same with a cache of fixed size, for which transformers compiles the decoding step."""
    from transformers import CompileConfig

    compiling = CompileConfig(fullgraph=False, mode="default")
    compiling._compile_all_devices = True  # it compiles on GPUs only otherwise
    generate(model, prompts, counts, 0.0, cache_implementation="static", compile_config=compiling)


def batches(bench: Bench) -> Iterator[Row]:
    new = 16 if bench.quick else 128
    for size in (1, 8) if bench.device == "cpu" else (1, 8, 64):
        prompts, counts = partial(bench.prompts, [32] * size), [new] * size
        engine = Engine(bench.ours, slots=size, length=256)
        functions = [partial(sample, engine, prompts, counts, 0.0), partial(generate, bench.peer, prompts, counts, 0.0)]
        if bench.device == "cpu" and not bench.quick:
            functions.append(partial(generate_compiled, bench.peer, prompts, counts))
        seconds = bench.best(functions, 1 if bench.quick else 2)
        yield compared(f"batch {size}", size * new, seconds[:2])
        if len(seconds) > 2:
            yield compared(f"batch {size}, generate compiled", size * new, [seconds[0], seconds[2]])


def experts(bench: Bench) -> Iterator[Row]:
    """Greedy decoding of a mixture; both sides read the prompts too."""
    new = 32 if bench.quick else 128
    model = make_mixture(4)
    peer = make_peer(model, "cuda", torch.bfloat16, experts_implementation="batched_mm")
    for size in (1, 2, 4, 8):
        prompts, counts = partial(bench.prompts, [32] * size), [new] * size
        engine = Engine(model, slots=size, length=256)
        functions = [partial(sample, engine, prompts, counts, 0.0), partial(generate, peer, prompts, counts, 0.0)]
        if size in (1, 8):  # it is compiled anew for each
            functions.append(partial(generate, peer, prompts, counts, 0.0, cache_implementation="static"))
        ours, *peers = bench.best(functions, ROUNDS)
        for name, seconds in zip(("eager", "compiled"), peers, strict=False):
            yield compared(f"experts, batch {size}, batched_mm {name}", size * new, [ours, seconds])


def rl(bench: Bench) -> Iterator[Row]:
    new = 24 if bench.quick else 60
    counts = [bench.random.randint(new // 6, new * 2 - new // 6) for _ in range(32)]
    prompts = partial(bench.prompts, [64] * 4, 8)
    engine = Engine(bench.ours, slots=32, length=256)
    functions = [partial(sample, engine, prompts, counts, 1.0), partial(generate, bench.peer, prompts, counts, 1.0)]
    yield compared("4 prompts x 8 samples, uneven", sum(counts), bench.best(functions, 1 if bench.quick else 2))


def continuous(bench: Bench) -> Iterator[Row]:
    from transformers import GenerationConfig

    size, new = (64, 64) if bench.quick else (256, 256)
    lengths, counts = [bench.random.randint(16, 512) for _ in range(size)], [new] * size
    engine, prompts = Engine(bench.ours, slots=256, length=1024), partial(bench.prompts, lengths)
    ours = bench.best([partial(sample, engine, prompts, counts, 1.0)], ROUNDS)[0]
    config = GenerationConfig(
        max_new_tokens=new, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0
    )
    made = list[int]()

    def peer() -> None:
        answers = bench.peer.generate_batch(inputs=prompts(), generation_config=config).values()
        made.append(sum(len(each.generated_tokens) for each in answers))

    seconds = [bench.seconds(peer) for _ in range(1 if bench.quick else ROUNDS + 1)]  # the first round warms up
    rates = [tokens / each for tokens, each in zip(made, seconds, strict=True)]
    yield compared(f"{size} prompts, continuous batching", size * new, [ours, size * new / max(rates)])


def decode(bench: Bench) -> Iterator[Row]:
    """The time of a step of 64 sequences in the engine, against reading weights and caches once."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in bench.ours.parameters())
    per_token = 30 * 2 * 3 * 64 * 2
    for length in (300, 2000) if bench.quick else (300, 1000, 2000, 4000):
        steps, rows = 100, 64
        engine = Engine(bench.ours, slots=rows, length=CONTEXT)
        requests = [
            engine.submit(bench.prompt(length), Sampling(max_new_tokens=2 * steps, seed=seed)) for seed in range(rows)
        ]
        while not all(request.tokens for request in requests):
            engine.step()
        for _ in range(10):
            engine.step()
        seconds = bench.seconds(partial(run_steps, engine, steps)) / steps
        mean = sum(request.size for request in requests) / rows - steps / 2
        bound = (weights + rows * mean * per_token) / BANDWIDTH
        for request in requests:
            engine.cancel(request)
        yield row(f"64 sequences of {length}: step", seconds * 1e3, bound * 1e3, bound / seconds, "ms")


def run_steps(engine: Engine, steps: int) -> None:
    for _ in range(steps):
        engine.step()


def group(bench: Bench) -> Iterator[Row]:
    """What the prompt of a group costs beside the decoding of its samples."""
    length, new = (512, 32) if bench.device == "cpu" else (2048, 256)
    engine = Engine(bench.ours, slots=16, length=4096)
    samplings = [Sampling(max_new_tokens=new, seed=seed) for seed in range(16)]
    all_of_it, decoding = float("inf"), float("inf")
    for _ in range(2 if bench.quick else 4):  # the first round warms up
        group = partial(engine.complete, [bench.prompt(length)] * 16, samplings)
        all_of_it, decoding = min(all_of_it, bench.seconds(group)), min(decoding, bench.seconds(group))
    yield row(f"16 samples of one prompt of {length}", all_of_it * 1e3, decoding * 1e3, all_of_it / decoding, "ms")


def update(bench: Bench) -> Iterator[Row]:
    """New weights between two steps, requests and their caches kept, checksum included."""
    model = make_ours("cuda", torch.bfloat16, width=2048, depth=16, inner=8192, key_share=4)
    engine = Engine(model, slots=32, length=1024)
    requests = [engine.submit(bench.prompt(100), Sampling(max_new_tokens=400, seed=seed)) for seed in range(32)]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    times = []
    for version in range(1, 6):
        for _ in range(10):
            engine.step()
        times.append(bench.seconds(partial(engine.update, state, version)))
    while any(request.finish is None for request in requests):
        engine.step()
    assert all(len(request.tokens) == 400 and max(request.versions) == 5 for request in requests)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    best = min(times) * 1e3
    yield row(f"update of {size:.2f}B parameters in flight", best, 50.0, 50.0 / best, "ms")


SHAPES: dict[str, Row] = {
    "1.2B": {"width": 2048, "depth": 16, "inner": 8192, "key_share": 4},
    "8 layers of 8B": {"width": 4096, "depth": 8, "inner": 14_336, "key_share": 4},
}


def float8(bench: Bench) -> Iterator[Row]:
    """Whole engines, then the linear layers of both shapes alone."""
    sizes = (16, 256, 1024) if bench.quick else (16, 64, 256, 512, 1024)
    for name, shape in SHAPES.items():
        plain = make_ours("cuda", torch.bfloat16, **shape, drawn=False)
        measured = dict[str, dict[str, float]]()
        kinds: tuple[Bits | None, ...] = (None, "float8", 8)
        for bits in kinds:
            model = copy.deepcopy(plain)
            if bits is not None:
                quantise_for_sampling(model, bits)
            measured[str(bits)] = measure_engine(bench, model, sizes)
        for kind, title in (("float8", "float8"), ("8", "8 bits")):
            for what, ours in measured[kind].items():
                peer = measured["None"][what]
                memory = what == "weights"
                ratio = peer / ours if memory else ours / peer
                yield row(f"{name}, {title}: {what}", ours, peer, ratio, "GB" if memory else "tokens/s")
    for outputs, inputs in sorted({each for shape in SHAPES.values() for each in layer_shapes(shape)}):
        yield from linear_layers(inputs, outputs, sizes)


def measure_engine(bench: Bench, model: Transformer, sizes: Sequence[int]) -> dict[str, float]:
    """Tokens a second of decoding `sizes` sequences and of reading prompts, and gigabytes of weights."""
    steps, length = 10 if bench.quick else 40, 128
    engine = Engine(model, slots=max(sizes), length=512)
    found = {"weights": stored_bytes(model) / 1e9}
    reading = [Sampling(max_new_tokens=1, seed=seed) for seed in range(64)]
    seconds = [bench.seconds(partial(engine.complete, bench.prompts([448] * 64), reading)) for _ in range(2)]
    found["64 prompts of 448"] = 64 * 448 / min(seconds)
    for size in sizes:
        requests = [
            engine.submit(prompt, Sampling(max_new_tokens=384, seed=seed))
            for seed, prompt in enumerate(bench.prompts([length] * size))
        ]
        while not all(request.tokens for request in requests):
            engine.step()
        run_steps(engine, 5)
        found[f"{size} sequences"] = size * steps / bench.seconds(partial(run_steps, engine, steps))
        for request in requests:
            engine.cancel(request)
    return found


def layer_shapes(shape: Row) -> list[tuple[int, int]]:
    """Outputs and inputs of a block's linear layers."""
    width, inner = shape["width"], shape["inner"]
    heads = width + 2 * width // shape["key_share"]
    return [(heads, width), (width, width), (2 * inner, width), (width, inner)]


def linear_layers(inputs: int, outputs: int, sizes: Sequence[int]) -> Iterator[Row]:
    """A layer in float8 beside one in bfloat16, and its cast and its product alone, in µs. The weights are not in a cache."""
    count = max(2, int(CACHED / (inputs * outputs)))
    plain = [Linear(inputs, outputs, bias=False, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    layers = [Float8Linear(layer.weight, None, pack_float8) for layer in plain]
    for rows in (*sizes, 8192):
        x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
        cast, scale = cast_rows(x, FLOAT8)
        ours, peer = (
            graph_micros([partial(each, x) for each in layers]),
            graph_micros([partial(each, x) for each in plain]),
        )
        casts = graph_micros([partial(cast_rows, x, FLOAT8)] * count)
        multiply = partial(multiply_cast, cast, scale, dtype=torch.bfloat16, fast=True)
        products = graph_micros([partial(multiply, right_NK=each.values, right_scale=each.scales) for each in layers])
        name = f"{inputs} to {outputs}, {rows}: {casts:.1f} + {products:.1f}"
        yield row(name, ours, peer, peer / ours, "us")


@torch.inference_mode()
def graph_micros(functions: Sequence[Callable[[], object]]) -> float:
    """The time of one of them, all captured in a CUDA graph, in µs; the best of three."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        functions[0]()
    torch.cuda.synchronize()
    graph, best = torch.cuda.CUDAGraph(), float("inf")
    with torch.cuda.graph(graph):
        for function in functions:
            function()
    graph.replay()
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3 / len(functions))
    return best


def compared(name: str, tokens: int, seconds: list[float]) -> Row:
    ours, peer = (tokens / value for value in seconds)
    return row(name, ours, peer, ours / peer, "tokens/s")


def row(name: str, ours: float, peer: float, ratio: float, unit: str) -> Row:
    digits = 1 if unit == "tokens/s" else 3
    return {
        "case": name,
        "ours": round(ours, digits),
        "peer": round(peer, digits),
        "ratio": round(ratio, 3),
        "unit": unit,
    }


CASES: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "batches": batches,
    "experts": experts,
    "rl": rl,
    "continuous": continuous,
    "decode": decode,
    "group": group,
    "update": update,
    "float8": float8,
}
ON_CPU = ("batches", "rl", "group")


def main() -> None:
    parser = argparse.ArgumentParser(description="Sampling speed against transformers.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cases", default="", help=f"some of {', '.join(CASES)} (default: all that the device can do)")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    bench = Bench(options.device, options.quick)
    print(f"135M parameters, {bench.dtype}, {options.device}, {torch.get_num_threads()} threads")
    print(f"{'case':42} {'ingot':>12} {'beside it':>12} {'ratio':>8}  unit")
    results = []
    for name in options.cases.split(",") if options.cases else ON_CPU if options.device == "cpu" else CASES:
        for result in CASES[name](bench):
            results.append(result)
            print(
                f"{result['case']:42} {result['ours']:12,} {result['peer']:12,} {result['ratio']:8.3f}  {result['unit']}",
                flush=True,
            )
    print(json.dumps({"benchmark": "inference", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
