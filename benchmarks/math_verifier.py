"""The math verifier beside the bare library: `python benchmarks/math_verifier.py [COUNT]`.

COUNT reference answers of MATH, each in the spellings of tests/envs/verifiers/math/spellings.py, and with wrong answers: how many
pairs each accepts, by rule, and examples of where they differ. The bare library is math-verify as its page shows it,
`verify(parse("$reference$"), parse("\\boxed{given}"))`, in this process.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from math_verify import parse, verify  # noqa: E402

from ingot.envs.verifiers.errors import VerifierError  # noqa: E402
from ingot.envs.verifiers.math.same_answer import same_answer  # noqa: E402
from tests.envs.verifiers.math.spellings import perturbed, spellings  # noqa: E402

DATA = ROOT.parent / "shared" / "data" / "math"
FILES = ("math500_dev.jsonl.gz", "math_test_minus_math500.jsonl.gz")


def bare(given: str, reference: str) -> bool:
    """What the library alone says."""
    found = parse(rf"\boxed{{{given}}}", parsing_timeout=None)
    return bool(verify(parse(f"${reference}$", parsing_timeout=None), found, timeout_seconds=None))


def ours(given: str, reference: str) -> bool:
    """What the verifier says; a pair on which it fails counts as refused, and is shown."""
    try:
        return same_answer(given, reference)
    except VerifierError as error:
        print(error)
        return False


def main(count: int) -> None:
    """Print the table."""
    logging.disable(logging.CRITICAL)
    answers = []
    for name in FILES:
        with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
            answers += [json.loads(line)["answer"] for line in lines]
    rng = random.Random(0)
    chosen = rng.sample(answers, min(count, len(answers)))
    pairs = [(rule, spelling, answer) for answer in chosen for rule, spelling in spellings(answer).items()]
    for answer in chosen:
        wrong = ("a digit changed", perturbed(answer, rng)), ("another problem's", rng.choice(answers))
        pairs += [(rule, other, answer) for rule, other in wrong if other is not None and other != answer]
    total, accepted, differ = Counter[str](), defaultdict[str, Counter[str]](Counter), defaultdict[str, list[str]](list)
    seconds = dict.fromkeys(("ours", "bare"), 0.0)
    for rule, given, reference in pairs:
        verdicts = {}
        for name, judge in (("ours", ours), ("bare", bare)):
            began = time.perf_counter()
            verdicts[name] = judge(given, reference)
            seconds[name] += time.perf_counter() - began
            accepted[name][rule] += verdicts[name]
        total[rule] += 1
        if verdicts["ours"] != verdicts["bare"]:
            differ[rule].append(f"{given} | {reference}")
    print(f"{len(pairs)} pairs of {len(chosen)} answers; ours {seconds['ours']:.1f} s, bare {seconds['bare']:.1f} s")
    print(f"{'rule':22} {'pairs':>6} {'ours':>6} {'bare':>6}  where they differ (given | reference)")
    for rule in sorted(total, key=lambda rule: accepted["bare"][rule] / total[rule]):
        examples = "   ".join(differ[rule][:3])
        print(f"{rule:22} {total[rule]:6} {accepted['ours'][rule]:6} {accepted['bare'][rule]:6}  {examples}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
