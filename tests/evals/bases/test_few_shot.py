"""Worked examples are drawn as lm-eval's samplers draw them."""

from __future__ import annotations

import pytest

from ingot.evals.bases.few_shot import FewShot
from ingot.workspace.errors import DataError

samplers = pytest.importorskip("lm_eval.api.samplers", reason="needs lm-eval (pip install 'ingot[evals]')")
POOL = [{"question": number % 17} for number in range(40)]  # some rows are there two or three times


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("count", [1, 3, 12, 22])
def test_random_ones_as_the_harness(count: int, itself: bool) -> None:
    ours = FewShot(POOL, count, "random", itself=itself)
    theirs = samplers.ContextSampler(POOL, rnd=1234)
    for row in POOL[:20]:
        assert ours(row) == theirs.sample(count, eval_doc=row if itself else None)


@pytest.mark.parametrize("itself", [False, True])
def test_the_first_ones_as_the_harness(itself: bool) -> None:
    ours = FewShot(POOL, 5, "first", itself=itself)
    theirs = samplers.FirstNSampler(POOL, rnd=1234)
    for row in POOL[:6]:
        assert ours(row) == theirs.sample(5, eval_doc=row if itself else None)


def test_too_few_rows() -> None:
    with pytest.raises(DataError, match="5 worked examples are asked for, and there are 5 rows"):
        FewShot(POOL[:5], 5, "random", itself=True)
