"""`ingot eval`'s path beside the LM evaluation harness with its transformers backend: the same model, rows and precision.

    python benchmarks/evals.py MODEL --data FOLDER [--rows 50] [--tasks mmlu,hellaswag,arc_easy,gsm8k]
    python benchmarks/evals.py MODEL --data FOLDER --device cuda --rows 570 --batch 16,64,256

MODEL is a Hugging Face folder (`ingot export` makes one), FOLDER the data folder with mmlu/, hellaswag/, core_icl/ and gsm8k/.
Each contender runs in a process of its own, float32 on a CPU and bfloat16 on a GPU. It loads the model, answers a few rows of
each task to warm up, then all of them, timed from the first request to the last answer; making prompts counts for neither. The
harness runs with every batch size that --batch names, and the better one counts for each task. Of MMLU each subject that is asked
has at least eight rows, where the whole has 246: what its five examples cost is divided by that many. Memory is the most that the
process held on the CPU, and that torch held on the GPU. Scores stand beside the times: a fast wrong answer is none. On a busy
machine set OMP_NUM_THREADS=1 and read the table of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TASKS = ("mmlu", "hellaswag", "arc_easy", "gsm8k")
SCORES = {"mmlu": "acc", "hellaswag": "acc_norm", "arc_easy": "acc_norm", "gsm8k": "exact_match/flexible-extract"}
GENERATED = 256  # tokens of an answer to gsm8k at most: the harness's own limit
WARM_ROWS = 4
ROWS_OF_SUBJECT = 8  # of MMLU at least: the whole has 246 of each, which begin with the same five examples


def write_tasks(folder: Path, data: Path, rows: int) -> None:
    """Task files for lm-eval over the same rows, which both contenders read."""
    from tests.evals.against_lm_eval.peer import write_task
    from tests.evals.against_lm_eval.published import arc, rows_of

    subjects = [row["subject"] for row in rows_of(data, "mmlu/dev")[::5]]
    taken = min(rows, max(ROWS_OF_SUBJECT, rows // len(subjects)))
    test, dev = rows_of(data, "mmlu/test_dev"), rows_of(data, "mmlu/dev")
    for subject in subjects[: rows // taken]:
        splits = {
            "test": [row for row in test if row["subject"] == subject][:taken],
            "dev": [row for row in dev if row["subject"] == subject],
        }
        write_task(folder, f"here_mmlu_{subject}", f"mmlu/default/mmlu_{subject}.yaml", splits)
    hellaswag = rows_of(data, "hellaswag/val_dev", rows)
    write_task(folder, "here_hellaswag", "hellaswag/hellaswag.yaml", {"validation": hellaswag, "train": hellaswag})
    science = [arc(row) for row in rows_of(data, "core_icl/arc_easy", rows)]
    splits = {"test": science, "train": science, "validation": science[:1]}
    write_task(folder, "here_arc_easy", "arc/arc_easy.yaml", splits)
    sums = {"test": rows_of(data, "gsm8k/test_dev", rows), "train": rows_of(data, "gsm8k/train")}
    write_task(folder, "here_gsm8k", "gsm8k/gsm8k.yaml", sums)


def load(folder: Path, name: str) -> list[Any]:
    """The tasks of lm-eval that one name stands for, with their requests made."""
    from tests.evals.against_lm_eval.peer import load_task

    shots = {"mmlu": 5, "gsm8k": 5}.get(name, 0)
    tasks = [load_task(file, shots) for file in sorted(folder.glob(f"here_{name}*.yaml"))]
    for task in tasks:
        task.build_all_requests()
    return tasks


def score_of(name: str, tasks: Sequence[Any]) -> float:
    """The score over all rows, as lm-eval's tasks find it in the answers that their instances hold."""
    from ingot.evals.suites.lm_eval.harness import score

    found = [each for task in tasks for each in score(task) if each.metric == SCORES[name]]
    values = [value for each in found for value in each.values.values()]
    return float(sum(values) / len(values))


def memory() -> dict[str, float]:
    """The most memory that was held, in GiB."""
    import torch

    held = {"cpu": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    return held | ({"gpu": torch.cuda.max_memory_allocated() / 2**30} if torch.cuda.is_available() else {})


def run_harness(options: argparse.Namespace, folder: Path) -> None:
    """The harness's contender, with one batch size: prints a JSON line."""
    import torch
    from lm_eval.models.huggingface import HFLM

    dtype = "bfloat16" if options.device == "cuda" else "float32"
    model = HFLM(
        pretrained=options.model, dtype=dtype, batch_size=options.batch_size, max_length=2048, device=options.device
    )
    times: dict[str, Any] = {}
    for name in options.tasks:
        tasks = load(folder, name)
        instances = [instance for task in tasks for instance in task.instances]
        kind = instances[0].request_type
        getattr(model, kind)(instances[:WARM_ROWS], disable_tqdm=True)
        began, worked = time.perf_counter(), time.process_time()
        answers = getattr(model, kind)(instances, disable_tqdm=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        for instance, answer in zip(instances, answers, strict=True):
            instance.resps.append(answer)
        found = {"seconds": seconds, "processor": processor, "requests": len(instances)}
        times[name] = found | {"score": score_of(name, tasks)}
    print(json.dumps({"tasks": times, "memory": memory()}))


def run_ours(options: argparse.Namespace, folder: Path) -> None:
    """Our contender: the engine of `ingot eval` answers the same requests; prints a JSON line."""
    import torch

    from ingot.evals.bases.suite import Measured, Measuring, Subject
    from ingot.evals.config import EvalConfig
    from ingot.evals.engine.answer import measure_together
    from ingot.evals.engine.local import LocalAnswerer
    from ingot.evals.engine.memory import AnswerMemory, RememberingEngine
    from ingot.evals.engine.open_subject import load_local
    from ingot.evals.engine.request import Request
    from ingot.evals.suites.lm_eval.harness import requests_of, response_of
    from ingot.workspace.interrupt import StopSignal

    local = load_local(EvalConfig(device=options.device, max_tokens=2048), Path(options.model))
    tokenizer = local.model.tokenizer
    assert tokenizer is not None
    subject = Subject("model", "text", StopSignal(), local, tokenizer)

    def answer(requests: Sequence[Request]) -> list[Any]:
        found: list[Any] = []

        def asking() -> Measuring:
            found.extend((yield requests))
            return Measured()

        with AnswerMemory(None) as kept:  # a new one each time: nothing is answered from memory
            answerer = LocalAnswerer(tokenizer, RememberingEngine(local.engine, kept), subject.stop)
            measure_together([(asking(), subject)], answerer)
        return found

    times: dict[str, Any] = {}
    for name in options.tasks:
        tasks = load(folder, name)
        instances = [instance for task in tasks for instance in task.instances]
        requests = [request for instance in instances for request in requests_of(instance, False)]
        answer(requests[:WARM_ROWS])
        began, worked = time.perf_counter(), time.process_time()
        answers = answer(requests)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        for instance, given in zip(instances, answers, strict=True):
            instance.resps.append(response_of(given, instance.request_type))
        found = {"seconds": seconds, "processor": processor, "requests": len(instances)}
        times[name] = found | {"score": score_of(name, tasks)}
    print(json.dumps({"tasks": times, "memory": memory()}))


def start(options: argparse.Namespace, folder: Path, contender: str, batch: int) -> dict[str, Any]:
    """Run a contender in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), options.model, "--contender", contender]
    command += ["--folder", str(folder), "--tasks", ",".join(options.tasks), "--device", options.device]
    command += ["--batch-size", str(batch)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | offline | {"PYTHONPATH": paths}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=options.deadline
    )
    if done.returncode:
        sys.exit(f"{contender} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    seconds = {name: (round(task["seconds"], 1), round(task["processor"], 1)) for name, task in found["tasks"].items()}
    print(
        f"{contender}, batch {batch or 'continuous'}, seconds and processor seconds: {seconds}",
        file=sys.stderr,
        flush=True,
    )
    return found


def show(ours: dict[str, Any], theirs: dict[int, dict[str, Any]], clock: str) -> None:
    """The table, by the `seconds` of the clock or of the processor; the harness's better batch size for each task."""
    print(
        f"{'task':12} {'requests':>8} {'harness s':>10} {'batch':>6} {'ingot s':>9} {'ratio':>7}   scores (harness, ingot)"
    )
    totals = [0.0, 0.0]
    for name, found in ours["tasks"].items():
        batch, best = min(((size, run["tasks"][name]) for size, run in theirs.items()), key=lambda each: each[1][clock])
        print(
            f"{name:12} {found['requests']:8} {best[clock]:10.1f} {batch:6} {found[clock]:9.1f} "
            f"{best[clock] / found[clock]:6.1f}x   {best['score']:.4f} {found['score']:.4f}"
        )
        totals = [totals[0] + best[clock], totals[1] + found[clock]]
    print(f"{'all':12} {'':8} {totals[0]:10.1f} {'':6} {totals[1]:9.1f} {totals[0] / totals[1]:6.1f}x")


def main() -> None:
    """Run both contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face folder")
    parser.add_argument("--data", type=Path, help="the data folder")
    parser.add_argument(
        "--rows", type=int, default=50, help="rows of each task (mmlu: of so many subjects that each has eight)"
    )
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=lambda text: [int(part) for part in text.split(",")], default=[1, 16])
    parser.add_argument("--deadline", type=float, default=7200.0, help="seconds that a contender may take")
    parser.add_argument("--contender", choices=["ours", "harness"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch-size", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        (run_ours if options.contender == "ours" else run_harness)(options, options.folder)
        return
    if options.data is None:
        parser.error("give --data FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        sys.path.insert(0, str(ROOT))
        folder = Path(temporary)
        write_tasks(folder, options.data, options.rows)
        ours = start(options, folder, "ours", 0)
        theirs = {size: start(options, folder, "harness", size) for size in options.batch}
    print(f"{options.model}, {options.device}, {options.rows} rows, load {os.getloadavg()[0]:.1f}")
    for clock in ("seconds", "processor"):
        print(f"\nby {'the clock' if clock == 'seconds' else 'processor time (a busy machine slows the clock)'}")
        show(ours, theirs, clock)
    for label, run in [("ingot", ours), *((f"harness, batch {size}", run) for size, run in theirs.items())]:
        print(f"memory, {label}: " + ", ".join(f"{size:.2f} GiB {kind}" for kind, size in run["memory"].items()))


if __name__ == "__main__":
    main()
