"""Compiles Triton kernels of ours for a Hopper GPU on a machine without one, and prints what each takes.

    python tests/kernels/compile_for_hopper.py [CASE ...]

Triton's wheel has the whole compiler, ptxas too. A driver that names a Hopper GPU and launches nothing stands in for CUDA's, and
the operators run on CPU tensors at sizes of published models: they are compiled as on a GPU. A line of JSON for each:
registers of a thread, bytes that it spills to local memory, bytes of shared memory of a program, and the instructions of the
tensor cores (HGMMA: a warp group's; HMMA: a warp's, slower).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # to be run as a file

from ingot.kernels.attention import attend_latent, attend_paged
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.experts import chosen_linear_kernel, sum_rows_kernel
from ingot.kernels.head import cross_entropy_kernel
from ingot.kernels.layer import rms_norm_kernel, rotate_kernel, swiglu_kernel
from ingot.kernels.linear import decayed_attention_kernel, key_gradients_kernel, recurrent_step_kernel, states_kernel
from ingot.kernels.linear.chunks import cut_equal
from ingot.kernels.quantised import float8_kernel
from ingot.kernels.quantised.float8 import TINY
from ingot.kernels.sparse import (
    dense_divergence_kernel,
    index_divergence_kernel,
    select_keys_kernel,
    sparse_attention_kernel,
)
from tests.kernels.recurrence_cases import by_operator, make_recurrence

PROGRAMS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SECONDS = 60


class HopperWithoutLaunches:
    """What Triton asks a driver before it launches."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape).to(dtype)


def sparse(heads: int) -> None:
    """DeepSeek-V3.2's attention to 2,048 chosen entries, and the target of its indexer's loss."""
    query, entry = random(1, 4, heads, 576).requires_grad_(), random(1, 64, 576).requires_grad_()
    selected = torch.zeros(1, 4, 2048, dtype=torch.int32)
    mixed, sums = sparse_attention_kernel.sparse_attention_forward(query, entry, selected, 512, 0.1)
    mixed.sum().backward()
    index_divergence_kernel.mean_probabilities_operator(query, entry, selected, sums, 512, 0.1)


def sparse_pages() -> None:
    query, pages = random(4, 1, 128, 576), random(32, 1, 16, 576)
    table, selected = torch.zeros(4, 8, dtype=torch.int32), torch.zeros(4, 1, 2048, dtype=torch.int32)
    sparse_attention_kernel.launch_pages(query, pages, table, selected, 512, 0.1)


def choice() -> None:
    """Its indexer's scores of 4,096 keys, the best of them, and the gradients of the loss on them."""
    query, weight, key = random(1, 128, 64, 128), random(1, 128, 64), random(1, 4096, 128)
    last = torch.arange(3968, 4096, dtype=torch.int32)[None]
    select_keys_kernel.select_keys_operator(query, weight, key, torch.zeros_like(last), last, 2048, 3968)
    select_keys_kernel.choose_largest(torch.zeros(2, 40_000), last[0, :2], last[0, :2], 2048)
    select_keys_kernel.select_from_pages(
        query[:, :1], weight[:, :1], random(256, 1, 16, 128), torch.zeros(1, 256, dtype=torch.int32), last[:, :1], 2048
    )
    selected, target = torch.zeros(1, 128, 2048, dtype=torch.int32), torch.zeros(1, 128, 2048)
    given = (query, weight.float(), key, selected, target)
    _, sums = index_divergence_kernel.chosen_divergence_forward(*given)
    index_divergence_kernel.chosen_divergence_backward(*given, sums, torch.ones(1, 128))


def warm_up() -> None:
    """The loss of its indexer over all keys, and the gradients."""
    heads, key = random(1, 4, 128, 192), random(1, 4, 128, 192)
    first, last = torch.zeros(1, 128, dtype=torch.int32), torch.arange(128, dtype=torch.int32)[None]
    target = dense_divergence_kernel.mean_of_heads(heads, key, first, last, 0.1)
    query, weight, narrow = (
        x.requires_grad_() for x in (random(1, 128, 64, 128), random(1, 128, 64), random(1, 128, 128))
    )
    total = dense_divergence_kernel.sum_of_divergences(query, weight, narrow, first, last, target, torch.ones(1, 128))
    total.backward()


def recurrence() -> None:
    """Linear attention with decays, as of lightning and Mamba-2, and a step of decoding of each recurrence."""
    for groups, heads, value_width in ((4, 4, 128), (1, 8, 64)):
        case = make_recurrence("decayed", (512, 512), groups, heads, 128, value_width, dtype=torch.bfloat16)
        by_operator(case, decayed_attention_kernel.forward)
        row = cut_equal(1, 32_768, torch.device("cpu"))  # long enough to be cut into parts
        left, right, sums = random(32_768, groups, 128), random(32_768, heads, value_width), torch.zeros(32_768, heads)
        first = torch.zeros(1, heads, 128, value_width)
        for backwards in (False, True):
            given = (left, right, sums, first, row.starts, row.chunks, row.offsets)
            states_kernel.run_states(*given, backwards=backwards, wants_last=True)
    states, slots = torch.zeros(3, 4, 128, 128), torch.arange(2)
    query, value, beta = torch.zeros(2, 4, 128), torch.zeros(2, 4, 128), torch.zeros(2, 4)
    for decay, rate in ((beta, None), (beta, beta), (query, beta)):
        recurrent_step_kernel.launch(states, slots, slots, query, query, value, decay, rate)


def delta_rule() -> None:
    """Our stage of the delta rule's backward pass: heads of 128 channels in groups of two, and of 256."""
    for heads, groups, width in ((4, 2, 128), (2, 2, 256)):
        case = make_recurrence("head", (512, 512), groups, heads, width, width, dtype=torch.bfloat16)
        query, key, value = (x.detach() for x in case.inputs[:3])
        states = random(len(case.sequences.chunks), heads, width, width)
        given = (query, key, value, case.gradient, case.inputs[3].detach(), states, states)
        at = (case.sequences.starts, case.sequences.chunks)
        key_gradients_kernel.run_key_gradients(*given, *at, error_gradient_THV=case.gradient)


def pages() -> None:
    """Attention over pages for one and for 64 new tokens: 32 query and 8 key heads, and latent attention with 128 heads.

    Beside it the rotation of latent attention's queries.
    """
    cos = torch.ones(1, 1, 64, 32)
    for interleaved in (False, True):
        rotate_kernel.launch(random(2, 128, 64, 192), cos, cos, interleaved, begin=128)
    table = torch.zeros(2, 64, dtype=torch.int32)
    for tokens in (1, 64):
        positions = torch.arange(tokens).expand(2, tokens).contiguous()
        keys = random(64, 8, 16, 128)
        attend_paged.launch(random(2, 32, tokens, 128), keys, keys, table, positions, AttentionOptions(0.1))
        attend_latent.launch(
            random(2, tokens, 128, 576),
            random(64, 1, 16, 576),
            table,
            positions,
            AttentionOptions(0.1),
            latent_width=512,
        )


def rows() -> None:
    """What passes over rows: norms, casts to float8, the feed-forward's gate, the loss on a vocabulary of 128,256."""
    rms_norm_kernel.launch(random(8, 4096), random(8, 4096), random(4096), 1e-6, False)
    for width in (2048, 8192, 14_336, 32_768):
        float8_kernel.launch_cast_rows(random(8, width), torch.float8_e4m3fn, TINY)
    projected = random(8, 16_384).requires_grad_()
    swiglu_kernel.swiglu_forward(projected).sum().backward()
    logits, targets = random(8, 128_256), torch.zeros(8, dtype=torch.long)
    cross_entropy_kernel.differentiate(logits, targets, torch.ones(8), None, 1.0, None)


def experts() -> None:
    """Two tokens at 8 of Qwen3-30B-A3B's experts, without sorting, and the sum over sorted rows."""
    chosen, weights = torch.zeros(2, 8, dtype=torch.long), random(2, 8)
    inner = chosen_linear_kernel.launch_linear(random(2, 2048), random(1, 1536, 2048), None, chosen)
    chosen_linear_kernel.launch_sum(inner[..., :768], random(1, 2048, 768), None, chosen, weights)
    sum_rows_kernel.launch(random(16, 2048), chosen, weights)


CASES: dict[str, Callable[[], None]] = {
    "sparse 32 heads": lambda: sparse(32),
    "sparse 128 heads": lambda: sparse(128),
    "sparse pages": sparse_pages,
    "choice": choice,
    "warm-up": warm_up,
    "recurrence": recurrence,
    "delta rule": delta_rule,
    "pages": pages,
    "rows": rows,
    "experts": experts,
}


def said_by(program: str, *arguments: str) -> str:
    """What one of the programs in Triton's wheel prints."""
    command = [str(PROGRAMS / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


def measure(compiled: Any) -> dict[str, int]:
    """Read from the machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = said_by("cuobjdump", "-res-usage", file.name), said_by("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    count = {name: len(re.findall(rf"\s{name}\.", code)) for name in ("HGMMA", "HMMA")}
    return {"registers": int(found[1]), "spilled": int(found[2]), "shared": compiled.metadata.shared, **count}


def main() -> None:
    driver.set_active(HopperWithoutLaunches())
    compile_and_launch, seen = JITFunction.run, set[int]()

    def only_compile(self: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = compile_and_launch(self, *given, grid=grid, warmup=True, **options)
        if id(compiled) not in seen:
            seen.add(id(compiled))
            row = {"case": name, "kernel": self.fn.__name__, **measure(compiled)}
            sys.stdout.write(json.dumps(row) + "\n")
        return compiled

    JITFunction.run = only_compile
    for name in sys.argv[1:] or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
