"""Speed of the data order: our batches against torch's DataLoader (and datatrove's data set) over the same mapped tokens.

The shards are generated: documents of log-normal length, 16-bit tokens. Every loader makes batches of the same windows in
the same shuffled order on one core, without worker processes, and the batches must be equal. Peers:

    same tensors       a map-style data set that makes what ours makes (tokens, targets, positions, documents, weights)
    tokens only        one that makes tokens and targets and ignores documents, as nanoGPT does
    datatrove          DatatroveFileDataset with positions, in file order, which it is made for (if it is installed)

Then documents per second of best-fit packing against TRL's `pack_dataset`, which also copies the tokens. All take turns and
the best of several rounds counts. On the CPU seconds are those of the processor, which a busy machine does not stretch; with
`--device cuda` they are those of the clock, and every batch is pinned and copied to the GPU.

    python benchmarks/loader.py [--device cpu|cuda] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from ingot.tokens.batch import Batch
from ingot.tokens.loader import MixtureLoader
from ingot.tokens.packing import best_fit_rows
from ingot.tokens.phases import ConstantBatch
from ingot.tokens.shards import DOCUMENTS_FILE, QUALITY_FILE, SOURCE_FILES, TOKENS_FILE, MappedSource, write_index
from ingot.tokens.windows import WindowRows
from ingot.workspace.files import file_sha256

VOCABULARY, NAME, SEED, BATCH_TOKENS = 50_000, "web", 1, 1 << 17
LENGTHS = (2048, 4096, 32_768)


@dataclass(frozen=True)
class Phase:
    """One mixture for the whole run."""

    until: float | None = 1.0
    until_tokens: int | None = None
    weights: dict[str, float] = field(default_factory=lambda: {NAME: 1.0})


def document_lengths(tokens: int) -> NDArray[np.int64]:
    """Log-normal, as web pages are: about 1,350 tokens on average."""
    lengths = np.random.default_rng(0).lognormal(6.5, 1.2, tokens // 1000).astype(np.int64) + 2
    return lengths[: int(np.searchsorted(np.cumsum(lengths), tokens))]


def write_shards(folder: Path, tokens: int) -> Path:
    sizes = document_lengths(tokens)
    ends = np.cumsum(sizes)
    (folder / NAME).mkdir(parents=True)
    ids = np.random.default_rng(1).integers(1, VOCABULARY, int(ends[-1]), dtype=np.uint16)
    ids[ends - 1] = 0
    ids.tofile(folder / NAME / TOKENS_FILE)
    np.save(folder / NAME / DOCUMENTS_FILE, np.stack([ends - sizes, 4 * sizes]))
    np.save(folder / NAME / QUALITY_FILE, np.ones(len(sizes), dtype=np.float32))
    entry = {
        "tokens": len(ids),
        "documents": len(sizes),
        "bytes": int(4 * sizes.sum()),
        "dtype": "<u2",
        "sha256": {name: file_sha256(folder / NAME / name) for name in SOURCE_FILES},
    }
    write_index(folder, {NAME: entry}, np.full(VOCABULARY, 4, dtype=np.int32), end_of_text=0)
    return folder


class Windows(Dataset[dict[str, torch.Tensor]]):
    """Windows of a mapped file, as one would write them for a DataLoader."""

    def __init__(self, source: MappedSource, length: int, whole: bool) -> None:
        self.tokens, self.length, self.whole = source.tokens, length, whole

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        start = number * self.length
        ids = torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))
        found = {"tokens": ids[:-1], "targets": ids[1:]}
        if self.whole:
            ended = ids[:-1] == 0
            places = torch.arange(self.length)
            begins = torch.where(torch.roll(ended, 1), places, 0)
            begins[0] = 0
            found["targets"] = torch.where(ended, 0, ids[1:])
            found["positions"] = places - torch.cummax(begins, 0).values
            found["documents"] = torch.cumsum(ended, 0) - ended.long()
            found["weight"] = (~ended).float()
        return found


def batches_of(data: Dataset[Any], order: list[list[int]], device: str) -> Iterator[dict[str, torch.Tensor]]:
    loader = DataLoader(data, batch_sampler=order, pin_memory=device == "cuda")
    for batch in loader:
        yield {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def our_batches(loader: MixtureLoader, steps: int, device: str) -> Iterator[Batch]:
    for step in range(steps):
        batch = loader.batch(step)
        yield batch.pinned().to(device) if device == "cuda" else batch


def check_equal(ours: Batch, peer: dict[str, torch.Tensor]) -> None:
    found = {
        "tokens": ours.tokens,
        "targets": ours.targets,
        "positions": ours.positions,
        "documents": ours.documents,
        "weight": ours.streams["weight"],
    }
    for name, tensor in peer.items():
        assert torch.equal(found[name], tensor), f"{name} differ"


def datatrove_batches(
    path: Path, length: int, order: list[list[int]], device: str
) -> Callable[[], Iterator[Any]] | None:
    if importlib.util.find_spec("datatrove") is None:
        return None
    from datatrove.utils.dataset import DatatroveFileDataset

    data = DatatroveFileDataset(str(path), length, return_positions=True, positions_from_eos_token_id=0)
    rows = len(order[0])
    in_order = [list(range(step * rows, (step + 1) * rows)) for step in range(len(order))]
    return lambda: batches_of(data, in_order, device)


def best_seconds(functions: dict[str, Callable[[], object]], rounds: int, device: str) -> dict[str, float]:
    best = dict.fromkeys(functions, float("inf"))
    clock = time.perf_counter if device == "cuda" else time.process_time
    for _ in range(rounds + 1):  # the first round warms up
        for name, function in functions.items():
            start = clock()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(best[name], clock() - start)
    return best


def consume(make: Callable[[], Iterator[object]]) -> Callable[[], None]:
    def run() -> None:
        for _ in make():
            pass

    return run


def compare(case: str, seconds: dict[str, float], amount: float, unit: str) -> list[dict[str, Any]]:
    """Print and return ours against each peer."""
    results = []
    for peer in list(seconds)[1:]:
        mine, theirs = (round(amount / seconds[name], 1) for name in ("ours", peer))
        label, ratio = f"{case}, {peer}", round(mine / theirs, 2)
        print(f"{label:58} {mine:14.0f} {theirs:14.0f} {ratio:7.2f}", flush=True)
        results.append({"case": label, "ours": mine, "peer": theirs, "ratio": ratio, "unit": unit})
    return results


def loader_results(folder: Path, length: int, steps: int, rounds: int, device: str) -> list[dict[str, Any]]:
    rows = BATCH_TOKENS // length

    def ours(packing: Any) -> MixtureLoader:
        return MixtureLoader(
            folder,
            (Phase(),),
            sequence_length=length,
            batches=ConstantBatch(rows),
            total_steps=steps,
            seed=SEED,
            packing=packing,
            verify=False,
        )

    split, packed = ours("split"), ours("best_fit")
    source = split.shards.source(NAME)
    sequence = WindowRows(source, length, f"{SEED}/{NAME}")
    order = [[int(sequence.row(step * rows + row).starts[0]) // length for row in range(rows)] for step in range(steps)]
    whole, bare = (Windows(source, length, whole) for whole in (True, False))
    for mine, theirs in zip(our_batches(split, 2, device), batches_of(whole, order, device), strict=False):
        check_equal(mine, theirs)
    makers: dict[str, Callable[[], Iterator[object]]] = {
        "ours": lambda: our_batches(split, steps, device),
        "DataLoader, same tensors": lambda: batches_of(whole, order, device),
        "DataLoader, tokens only": lambda: batches_of(bare, order, device),
    }
    trove = datatrove_batches(folder / NAME / TOKENS_FILE, length, order, device)
    if trove is not None:
        makers["datatrove, in file order"] = trove
    amount = steps * BATCH_TOKENS
    seconds = best_seconds({name: consume(make) for name, make in makers.items()}, rounds, device)
    results = compare(f"split {length}", seconds, amount, "tokens/s")
    fit = {"ours": makers["ours"], "DataLoader, same tensors": makers["DataLoader, same tensors"]}
    fit["ours"] = lambda: our_batches(packed, steps, device)
    seconds = best_seconds({name: consume(make) for name, make in fit.items()}, rounds, device)
    return results + compare(f"best fit {length}", seconds, amount, "tokens/s")


def packing_results(documents: int, rounds: int) -> list[dict[str, Any]]:
    if importlib.util.find_spec("trl") is None:
        return []
    from datasets import Dataset as Table
    from datasets import disable_progress_bars
    from trl import pack_dataset

    disable_progress_bars()
    lengths = np.minimum(document_lengths(2000 * documents)[:documents], 8192)
    table = Table.from_dict({"input_ids": [np.ones(size, dtype=np.int32) for size in lengths]})
    whole = {"batch_size": documents, "keep_in_memory": True, "load_from_cache_file": False}
    functions: dict[str, Callable[[], object]] = {
        "ours": lambda: best_fit_rows(lengths, 8192),
        "TRL": lambda: pack_dataset(table, 8192, strategy="bfd", map_kwargs=whole),
    }
    used = np.bincount(best_fit_rows(lengths, 8192), weights=lengths)
    theirs = [sum(sizes) for sizes in pack_dataset(table, 8192, strategy="bfd", map_kwargs=whole)["seq_lengths"]]
    assert sorted(used) == sorted(theirs), "the rows are not equally full"
    return compare("packing 8192", best_seconds(functions, rounds, "cpu"), documents, "documents/s")


def main() -> None:
    parser = argparse.ArgumentParser(description="The data order: ours, torch's DataLoader, datatrove.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and rounds: within a minute")
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps, rounds = (10, 5) if options.quick else (40, 20)
    print(f"one core, {options.device}, torch {torch.__version__}; tokens or documents per second")
    print(f"{'case':58} {'ours':>14} {'peer':>14} {'ratio':>7}")
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = write_shards(Path(temporary) / "shards", 100_000_000 if options.quick else 400_000_000)
        for length in LENGTHS:
            results += loader_results(folder, length, steps, rounds, options.device)
    results += packing_results(10_000 if options.quick else 50_000, 2 if options.quick else 5)
    print(json.dumps({"benchmark": "loader", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
