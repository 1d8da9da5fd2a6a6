"""Prepares the workers before the first task: what each one imports, and kernels compiled once on a machine.

Compilation takes about two seconds a step when it is new on a machine, much longer than a small corpus. Before the first
run every step whose kernels were never compiled is tried on a few words, different steps in different workers; the
compiled kernels are then in the cache folder (kernel_cache.py), where all workers find them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ingot.data.engine.work import Work, WorkerJob
from ingot.data.step import Step

PROSE = "The keeper wrote down the names of the ships. Nobody knew why that was.\n\nWho went by? He did not say.\n"
CODE = (
    '"""Tools."""\n\nimport os\n\n\ndef join(first, second):\n    # a comment\n    return os.path.join(first, second)\n'
)
WORDS = [PROSE, PROSE, CODE, PROSE.replace("ships", "boats") * 4]
LOADED = ("pyarrow.compute", "pyarrow.parquet", "ingot.data.read.read", "ingot.data.annotate", "ingot.data.native")
KNOWN = {"id", "text", "source", "kind", "mime", "title"}  # what is made up here; a step that reads more is left alone


def load() -> None:
    """What every worker needs, loaded while the main process plans (`prepare` of LocalPool)."""
    for name in LOADED:
        import_module(name)


def warm_up(steps: Sequence[Step], work: Work) -> None:
    """Compile what was never compiled here, on all workers. With one worker there is nothing to share."""
    if work.pool.width == 1:
        return
    cold = {step.short_name: step for step in steps if is_cold(step) and set(step.reads()) <= KNOWN}
    if len(cold) > 1:
        work.progress.say(f"compiling {', '.join(cold)}: once on this machine")
        work.execute("compile", [WorkerJob(try_step, (step,), f"compile {name}") for name, step in cold.items()])


def is_cold(step: Step) -> bool:
    """True if numba has stored nothing for a file of the step's kernels; those of text/ are shared by all steps."""
    from ingot.data import kernel_cache  # numba, which a recipe is read without

    own = Path(str(sys.modules[type(step).__module__].__file__))
    kernels = kernel_cache.reachable(own) & kernel_cache.with_kernels
    return any(
        kernel_cache.is_cold(file) for file in kernels if file.parent.name != "text" and file.name != "native.py"
    )


def try_step(step: Step) -> None:
    """Run a step on a few words (in a worker)."""
    from ingot.data.apply import apply

    chosen = {name: wanted if isinstance(wanted, str) else wanted[0] for name, wanted in step.where.items()}
    apply(step, [{"text": text, "kind": "code" if text is CODE else "prose", **chosen} for text in WORDS])
