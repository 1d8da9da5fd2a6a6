"""What a fitted law says: coefficients, what budgets buy, predictions, and misses of the runs that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ingot.lab.fit_law import FittedLaw, Interval, MeasuredRun, fit_law
from ingot.lab.loss_law import LossLaw, Model
from ingot.lab.run_table import RunTable
from ingot.workspace.errors import DataError

FEW_RUNS = 6  # four sizes of one seed: intervals of 95 % held the truth in 78 % of simulated tables
NO_FLOOR = 0.05  # a smaller share of the lowest loss is no irreducible loss
STEEP = 1.5
FAR = 100.0  # times the largest fitted compute: beyond this no public law is known to hold


@dataclass(frozen=True)
class LawQuestions:
    """What the user wants to know of the law."""

    budgets: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    served: tuple[float, ...] = ()
    at: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Bought:
    """A model that a budget buys, with intervals over the draws."""

    flops: float
    name: str
    model: Model
    size: Interval
    ratio: Interval
    loss: Interval


@dataclass(frozen=True)
class Expected:
    """The predicted loss of a run, and what it reached where that is known."""

    parameters: float
    tokens: float
    loss: Interval
    beyond: float  # its compute over the largest of the fit
    measured: float | None = None

    @property
    def miss(self) -> float | None:
        """How far the prediction is above what was measured."""
        return None if self.measured is None else self.loss.value / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the interval has what was measured."""
        return None if self.measured is None else self.loss.low <= self.measured <= self.loss.high


@dataclass(frozen=True)
class LawReport:
    """Everything that the command prints."""

    fit: FittedLaw
    source: str
    coefficients: dict[str, Interval]
    bought: tuple[Bought, ...]
    expected: tuple[Expected, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        bought = [asdict(each) for each in self.bought]
        expected = [asdict(each) | {"miss": each.miss, "inside": each.inside} for each in self.expected]
        return {
            "law": asdict(self.fit.law),
            "source": self.source,
            "objective": self.fit.objective,
            "scatter": self.fit.scatter,
            "coefficients": {name: asdict(each) for name, each in self.coefficients.items()},
            "budgets": bought,
            "predictions": expected,
            "notes": list(self.notes),
        }


def report_law(
    table: RunTable,
    questions: LawQuestions,
    *,
    drop_highest: int = 0,
    hold_out: int = 0,
    draws: int = 1000,
    seed: int = 0,
) -> LawReport:
    """Fit the runs of a table, without those held out, and answer the questions."""
    if drop_highest + hold_out >= len(table.rows):
        raise DataError(f"of {len(table.rows)} rows none is left for the fit", fix="leave out fewer")
    rows = sorted(table.rows, key=lambda row: row.loss)[: len(table.rows) - drop_highest]
    rows.sort(key=lambda row: row.product)
    fitted, held = rows[: len(rows) - hold_out], rows[len(rows) - hold_out :]
    fit = fit_law(fitted, draws=draws, seed=seed)
    largest = max(row.product for row in fitted)
    asked = [(*pair, None) for pair in questions.at] + [(row.parameters, row.tokens, row.loss) for row in held]
    expected = tuple(Expected(n, d, fit.prediction(n, d), n * d / largest, measured) for n, d, measured in asked)
    return LawReport(
        fit,
        _source(table, fitted, drop_highest, hold_out),
        _coefficients(fit),
        tuple(
            _bought(fit, flops, name, choose)
            for flops in questions.budgets
            for name, choose in _choices(flops, questions)
        ),
        expected,
        tuple(_notes(fit, fitted, expected)),
    )


def _coefficients(fit: FittedLaw) -> dict[str, Interval]:
    """The five, and how the best size and horizon grow with compute."""
    return {
        "E": fit.interval(lambda law: law.E),
        "A": fit.interval(lambda law: law.A),
        "B": fit.interval(lambda law: law.B),
        "alpha": fit.interval(lambda law: law.alpha),
        "beta": fit.interval(lambda law: law.beta),
        "N* ~ C^": fit.interval(lambda law: law.size_exponent),
        "D* ~ C^": fit.interval(lambda law: 1 - law.size_exponent),
    }


def _choices(flops: float, questions: LawQuestions) -> list[tuple[str, Callable[[LossLaw], Model]]]:
    """Ways to spend a budget."""

    def at_ratio(ratio: float) -> Callable[[LossLaw], Model]:
        return lambda law: law.at_ratio(flops, ratio)

    def to_serve(served: float) -> Callable[[LossLaw], Model]:
        return lambda law: law.best_to_serve(flops, served)

    return [
        ("best", lambda law: law.best(flops)),
        *((f"{ratio:g} tokens a parameter", at_ratio(ratio)) for ratio in questions.ratios),
        *((f"best, and to serve {served:.3g} tokens", to_serve(served)) for served in questions.served),
    ]


def _bought(fit: FittedLaw, flops: float, name: str, choose: Callable[[LossLaw], Model]) -> Bought:
    return Bought(
        flops,
        name,
        choose(fit.law),
        fit.interval(lambda law: choose(law).parameters),
        fit.interval(lambda law: choose(law).ratio),
        fit.interval(lambda law: choose(law).loss),
    )


def _source(table: RunTable, fitted: list[MeasuredRun], dropped: int, held: int) -> str:
    """How many runs of which span, and what was counted as N and D."""
    columns = table.columns
    sizes, horizons = [row.parameters for row in fitted], [row.tokens for row in fitted]
    tokens = f"`{columns.tokens}`" if columns.tokens else f"`{columns.flops}` / 6N"
    left = [f"{dropped} of the highest loss dropped"] if dropped else []
    left += [f"{held} of most compute held out"] if held else []
    return "; ".join(
        [
            f"{len(fitted)} rows of {len({row.run for row in fitted})} runs",
            f"N is `{columns.parameters}`, {min(sizes):.3g} to {max(sizes):.3g}",
            f"D is {tokens}, {min(horizons):.3g} to {max(horizons):.3g}",
            f"loss is `{columns.loss}`",
            *left,
        ]
    )


def _notes(fit: FittedLaw, fitted: list[MeasuredRun], expected: tuple[Expected, ...]) -> list[str]:
    """What to beware of."""
    notes = [f"runs scatter by {fit.scatter:.2%} around the law; the exponents hold for what was counted as N"]
    runs = len({row.run for row in fitted})
    if runs < FEW_RUNS:
        notes.append(f"{runs} runs are too few to draw from: the intervals are narrower than they say")
    floor = fit.law.E / min(row.loss for row in fitted)
    if floor < NO_FLOOR:
        notes.append(
            "E went to zero: the loss falls faster than this law, as in runs too short to follow one; do not extrapolate"
        )
    steep = [name for name in ("alpha", "beta") if getattr(fit.law, name) > STEEP]
    if steep:
        notes.append(
            f"{' and '.join(steep)} above {STEEP:g} is unusually steep: too few sizes, or settings that do not suit all"
        )
    known = [each for each in expected if each.inside is not None]
    if known:
        missed = [each.miss for each in known if each.miss is not None]
        mean, inside = sum(missed) / len(missed), sum(bool(each.inside) for each in known)
        notes.append(f"held out: {inside} of {len(known)} runs inside their interval, mean miss {mean:+.2%}")
        if len(known) > 1 and inside * 2 < len(known) and (min(missed) > 0 or max(missed) < 0):
            side = "high" if mean > 0 else "low"
            notes.append(
                f"every prediction is too {side}: larger runs leave this law, so its intervals are too narrow there"
            )
    if any(each.beyond > FAR for each in expected):
        notes.append(f"a prediction beyond {FAR:g} x the fitted compute: its interval assumes that the law goes on")
    return notes
