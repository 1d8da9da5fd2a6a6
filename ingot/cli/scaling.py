"""`ingot scaling`: the law of the loss from runs of several sizes and horizons, and what it says of larger ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingot.cli.given import refuse_given
from ingot.cli.help import App
from ingot.cli.options import JsonOption
from ingot.cli.show import console, print_json, quantity
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from ingot.lab.fit_law import Interval
    from ingot.lab.law_report import Expected, LawReport

scaling_app = App(
    name="scaling",
    help="Fit the loss by size and tokens, and say what a larger run will reach.",
    no_args_is_help=True,
    add_completion=False,
)


@scaling_app.command("fit")
def fit_command(
    context: typer.Context,
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Runs: CSV or JSONL, also with .gz; or RUNS/NAME.", show_default=False),
    ],
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="COLUMN", help="What counts as N; default N or parameters.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="COLUMN", help="Training tokens D; default D or tokens.")
    ] = None,
    flops: Annotated[
        str | None, typer.Option("--flops", metavar="COLUMN", help="Instead of tokens: training FLOPs, D = C/6N.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", metavar="COLUMN", help="The loss; default loss, of RUNS/NAME bits per byte.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="COLUMN", help="Rows of one run, such as its horizons; default: each row is one."
        ),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Take these rows; may be repeated.")
    ] = None,
    drop_highest: Annotated[
        int, typer.Option("--drop-highest", metavar="K", min=0, help="Leave out the K rows of the highest loss.")
    ] = 0,
    hold_out: Annotated[
        int,
        typer.Option(
            "--hold-out", metavar="K", min=0, help="Fit without the K rows of most compute; print the misses."
        ),
    ] = 0,
    budget: Annotated[
        list[float] | None, typer.Option("--budget", metavar="FLOPS", help="Best size and tokens; may be repeated.")
    ] = None,
    ratio: Annotated[
        list[float] | None,
        typer.Option("--ratio", metavar="R", help="For each budget also R tokens a parameter; may be repeated."),
    ] = None,
    serve: Annotated[
        list[float] | None,
        typer.Option(
            "--serve", metavar="TOKENS", help="For each budget also the best if it pays for these tokens of use."
        ),
    ] = None,
    at: Annotated[
        list[str] | None, typer.Option("--at", metavar="N,D", help="Predict this run: 7e9,2e12; may be repeated.")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", metavar="K", min=100, help="Bootstrap draws.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the draws.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Fit E + A/N^alpha + B/D^beta to a table of runs: intervals, best size for a budget, predictions."""
    from ingot.lab.finished_runs import read_finished
    from ingot.lab.law_report import LawQuestions, report_law
    from ingot.lab.run_table import Columns, read_runs

    for option, given in (("--ratio", ratio), ("--serve", serve)):
        if given and not budget:
            raise RecipeError(f"{option} needs a budget", place="ingot scaling fit", fix="add --budget 1e20")
    for option, numbers in (("--budget", budget), ("--ratio", ratio), ("--serve", serve)):
        if any(not number > 0 for number in numbers or ()):
            raise RecipeError("a number above zero is needed", place=option, fix="write it as 1e20")
    if table.is_dir():
        refuse_given(context, ("parameters", "tokens", "flops", "run", "where"), "for a run folder")
        found = read_finished(table, loss)
    else:
        conditions = dict(_condition(text) for text in where or ())
        found = read_runs(table, Columns(parameters, tokens, flops, loss, run), conditions)
    questions = LawQuestions(
        budgets=tuple(budget or ()),
        ratios=tuple(ratio or ()),
        served=tuple(serve or ()),
        at=tuple(map(_pair, at or ())),
    )
    report = report_law(found, questions, drop_highest=drop_highest, hold_out=hold_out, draws=draws, seed=seed)
    print_json(report.as_json()) if as_json else show_law(report)


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise RecipeError("a column and its value are needed", place=f"--where {text}", fix="write --where data=c4")
    return column, value


def _pair(text: str) -> tuple[float, float]:
    """`7e9,2e12` as a size and a horizon."""
    try:
        parameters, tokens = (float(part) for part in text.split(","))
    except ValueError as error:
        fix = "write parameters and tokens, --at 7e9,2e12"
        raise RecipeError("this is not N,D", place=f"--at {text}", fix=fix) from error
    if not (parameters > 0 and tokens > 0):
        raise RecipeError("N and D are above zero", place=f"--at {text}", fix="write --at 7e9,2e12")
    return parameters, tokens


def show_law(report: LawReport) -> None:
    """The law with its intervals, what budgets buy, predictions and misses, and what to beware of."""
    law = report.fit.law
    typer.echo(f"L(N, D) = {law.E:.4g} + {law.A:.4g} / N^{law.alpha:.4g} + {law.B:.4g} / D^{law.beta:.4g}")
    typer.echo(report.source)
    rows = [
        (name, f"{each.value:.4g}", _between(each), f"{each.error:.2g}") for name, each in report.coefficients.items()
    ]
    _table(("", "value", "95 % interval", "standard error"), rows)
    if report.bought:
        typer.echo("")
        _table(
            ("FLOPs", "model", "N", "D", "D/N", "95 % interval", "loss", "95 % interval"),
            [
                (
                    f"{each.flops:.3g}",
                    each.name,
                    f"{_size(each.size.value)} ({_size(each.size.low)} to {_size(each.size.high)})",
                    _size(each.model.tokens),
                    f"{each.ratio.value:.3g}",
                    _between(each.ratio, 3),
                    f"{each.model.loss:.4f}",
                    _between(each.loss),
                )
                for each in report.bought
            ],
        )
    if report.expected:
        typer.echo("")
        _table(
            ("N", "D", "predicted", "95 % interval of a run", "measured", "miss", "compute"),
            [_expected(each) for each in report.expected],
        )
    for line in report.notes:
        typer.echo(line)


def _expected(each: Expected) -> tuple[str, ...]:
    measured, miss = "", ""
    if each.measured is not None and each.miss is not None:
        measured, miss = f"{each.measured:.4f}", f"{each.miss:+.2%}{'' if each.inside else ', outside'}"
    sizes = (_size(each.parameters), _size(each.tokens))
    return (
        *sizes,
        f"{each.loss.value:.4f}",
        _between(each.loss),
        measured,
        miss,
        f"{each.beyond:.3g} x the largest fitted",
    )


def _size(count: float) -> str:
    return quantity(count).replace("G", "B")


def _between(each: Interval, digits: int = 4) -> str:
    return f"{each.low:.{digits}g} to {each.high:.{digits}g}"


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(
            column, justify="left" if number == 0 or column in ("model", "compute") else "right", no_wrap=True
        )
    for row in rows:
        table.add_row(*row)
    console().print(table)
