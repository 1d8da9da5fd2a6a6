"""Precision and recall of decontamination on a labelled set: our modes and datatrove's filter, on the same documents.

    python benchmarks/decontamination.py --data ../shared/data [--per-kind 100] [--only NAME …] [--json FILE]

The set is made on the spot (leaks.py) from eval files, web pages, books and licences. A row a kind: share of
its documents that are flagged; for leaks that is recall, for clean ones the false positives.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from benchmarks.leaks import Sample, against, labelled_set
from ingot.data.apply import apply
from ingot.data.contamination.evals import evals
from ingot.data.outside import STEPS

Flags = list[bool]
Filter = Callable[[list[str]], Flags]


def modes(data: Path) -> dict[str, Callable[[], Filter | None]]:
    """What is compared, by name; each is built when its turn comes."""
    files = against(data)
    ranks = data / "tokenizers" / "cl100k_base.tiktoken.gz"

    def ours(name: str = "decontaminate", **options: Any) -> Callable[[], Filter]:
        step = STEPS.read({"step": name, "against": files, **options})
        return lambda: lambda texts: [reason is not None for reason in apply(step, texts)["removed_by"].to_pylist()]

    found: dict[str, Callable[[], Filter | None]] = {
        "8-grams": ours(ngram_words=8),
        "13-grams": ours(ngram_words=13),
        "13, half": ours(ngram_words=13, min_share=0.5),
        "8, half, corpus": ours(ngram_words=8, min_share=0.5, weights="corpus"),
        "decon words": ours("decon"),
        "decon questions": ours("decon", answers=False),
        "decon corpus": ours("decon", weights="corpus"),
        "decon web run": ours(
            "decon", threshold=0.88, perfect_until=25, short_answer=1, answer_window=20, long_answer_window=20,
            answer_ngram=2, passages=False,
        ),
    }  # fmt: skip
    if ranks.is_file():
        found["decon cl100k"] = ours("decon", tokens=str(ranks))
    found["datatrove"] = lambda: datatrove_filter(files, find_query=False)
    found["datatrove+query"] = lambda: datatrove_filter(files)
    return found


def datatrove_filter(files: Sequence[str], find_query: bool = True) -> Filter | None:
    """datatrove's n-gram filter (12 words, one is enough) with an index of these evals; None if it is not installed.

    By default it looks for answers and for n-grams that reach from the question into the answer; `find_query` adds
    those of the question alone.
    """
    try:
        from datatrove.data import Document
        from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer

        peer = NGramsDecontFilter("/nonexistent", NGramsDecontConfig(find_query_ngrams=find_query))
        peer.tokenizer.word_tokenize("try it")
    except ImportError as error:
        print(f"datatrove is left out: {error}", file=sys.stderr)
        return None
    hash_bytes = peer.hash_func
    peer.hash_func = lambda text: hash_bytes(text.encode())  # xxhash takes bytes only since version 4
    index: dict[int, str] = {}
    for item in evals(list(files)):
        # its indexer wants lighteval; the hashes are those that its method computes
        index.update(dict.fromkeys(NGramsDecontIndexer.compute_hashes(peer, item.answer, item.question), item.set))
    peer._index_hashes = index
    return lambda texts: [peer.filter(Document(text=text, id=str(n))) is not True for n, text in enumerate(texts)]


def measure(data: Path, per_kind: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Shares of flagged documents by kind, and precision, recall and F1, for every mode (or only these)."""
    samples = labelled_set(data, per_kind)
    result: dict[str, Any] = {"documents": len(samples), "modes": {}}
    for name, build in modes(data).items():
        if not only or name in only:
            mode = build()
            if mode is not None:
                result["modes"][name] = scores(samples, mode([sample.text for sample in samples]))
    return result


def scores(samples: list[Sample], flags: Flags) -> dict[str, Any]:
    """Counts by kind, and the summary."""
    kinds: dict[str, list[int]] = {}
    for sample, flag in zip(samples, flags, strict=True):
        entry = kinds.setdefault(f"{sample.label}: {sample.kind}", [0, 0])
        entry[0] += flag
        entry[1] += 1
    true = sum(flag for sample, flag in zip(samples, flags, strict=True) if sample.label == "leak")
    false = sum(flag for sample, flag in zip(samples, flags, strict=True) if sample.label == "clean")
    leaks = sum(sample.label == "leak" for sample in samples)
    precision, recall = true / max(1, true + false), true / leaks
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"kinds": kinds, "precision": precision, "recall": recall, "f1": f1}


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    found = result["modes"]
    width = max(len(kind) for kind in next(iter(found.values()))["kinds"])
    lines = [" " * width + "".join(f"{name:>17}" for name in found)]
    for kind, (_, count) in next(iter(found.values()))["kinds"].items():
        cells = [mode["kinds"][kind][0] / count for mode in found.values()]
        lines.append(kind.ljust(width) + "".join(f"{cell:>17.1%}" for cell in cells) + f"   of {count}")
    lines += [
        name.ljust(width) + "".join(f"{mode[name]:>17.3f}" for mode in found.values())
        for name in ("precision", "recall", "f1")
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the eval sets")
    parser.add_argument("--per-kind", type=int, default=100, help="documents of every kind")
    parser.add_argument("--only", nargs="*", default=[], help="names of modes, as in the table")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    result = measure(options.data, options.per_kind, options.only)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
