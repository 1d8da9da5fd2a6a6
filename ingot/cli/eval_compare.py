"""`ingot eval compare`, `subset` and `follow`: what is done with scores, and evaluation beside a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.given import refuse_given
from ingot.cli.show import print_json
from ingot.workspace.errors import RecipeError
from ingot.workspace.runs import find_scores

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FoldersArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="SCORES...",
        help="Runs, or folders of scores, of eval stages, or of steps of a history.",
        show_default=False,
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N questions of each suite.")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="FOLDER", help="Folder of data sets (default: INGOT_DATA).")
]
PATIENCE = 3600.0

WITH_TASKS = ("icl", "lm_eval")  # suites whose metrics have a task in their names


def compare_command(folders: FoldersArgument, as_json: JsonOption = False) -> None:
    """Compare models by their scores: differences from the first, how sure they are, and which questions changed."""
    from ingot.cli.show_compare import show_comparison
    from ingot.evals.scores.compare import compare

    comparison = compare([find_scores(folder) for folder in folders])
    print_json(comparison.as_json()) if as_json else show_comparison(comparison)


def subset_command(
    folders: FoldersArgument,
    metric: Annotated[str, typer.Option("--metric", metavar="NAME", help="What it is chosen by.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.", show_default=False)],
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="Questions of the subset.")] = 100,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed that assigns models to folds.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Choose few questions that follow the whole suite, by the scores of four models or more on all of it."""
    from ingot.evals.scores.subset import choose_subset

    subset = choose_subset([find_scores(folder) for folder in folders], count, metric, out, seed)
    if as_json:
        print_json(subset.as_json())
        return
    for name, fit in ((subset.way, subset.fit), ("random questions", subset.random)):
        correlation = "unknown" if fit.correlation is None else f"{fit.correlation:.3f}"
        typer.echo(f"{name}: correlation {correlation}, error {fit.error:.4f} on models that were left out")
    suite, _, rest = metric.partition("/")
    task = f", task: {rest.split('/')[0]}" if suite in WITH_TASKS else ""
    typer.echo(f"subset: {out}\nuse it:\n  suites: [{{suite: {suite}{task}, subset: {out}}}]")


def follow_command(
    context: typer.Context,
    stage: Annotated[
        Path, typer.Argument(metavar="RUN/STAGE", help="A training stage that is running.", show_default=False)
    ],
    every: Annotated[
        int, typer.Option("--every", metavar="N", min=1, help="Measure the checkpoint of every N-th step.")
    ],
    suite: Annotated[list[str], typer.Option("--suite", metavar="NAMES", help="Suites, with commas between.")],
    limit: LimitOption = None,
    data: DataOption = None,
    shards: Annotated[
        Path | None, typer.Option("--shards", metavar="FOLDER", help="Token shards, for suites on held-out text.")
    ] = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", min=0, help="Give up after so long without a checkpoint.")
    ] = PATIENCE,
    stop_metric: Annotated[
        str | None,
        typer.Option("--stop-metric", metavar="NAME", help="End the training when this metric stops improving."),
    ] = None,
    stop_after: Annotated[
        int,
        typer.Option(
            "--stop-after", metavar="N", min=1, help="Stop after this many measurements in a row without improvement."
        ),
    ] = 3,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where it runs.")] = "auto",
) -> None:
    """Measure the checkpoints of a running stage as they appear, until it is done; beside the run: RUN/follow-STAGE."""
    from ingot.cli.stop import note_signals
    from ingot.evals.config import ChooseConfig, EvalConfig
    from ingot.evals.scores.follow import follow_run
    from ingot.recipe.single import make_stage
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import make_progress
    from ingot.workspace.stage import StageFolder

    if stop_metric is None:
        refuse_given(context, ("stop_after",), "without --stop-metric")
    folder = running_stage(stage)
    options: dict[str, Any] = {
        "suites": [name for text in suite for name in text.split(",") if name],
        "limit": limit,
        "data": "" if data is None else str(data.resolve()),
        "device": device,
    }
    config = make_stage("eval", "follow", options, (), inputs={}).stages[0].config
    assert isinstance(config, EvalConfig)
    inputs = {} if shards is None else {"shards": shards}
    rule = None if stop_metric is None else ChooseConfig(metric=stop_metric, patience=stop_after)
    stop, received = StopSignal(), list[int]()
    with note_signals(stop, received), make_progress() as progress:
        target = StageFolder(folder.parent / f"follow-{folder.name}", seed=1, progress=progress, stop=stop)
        history = follow_run(config, folder, every, patience, inputs, target, rule)
    typer.echo(f"history: {history}")


def running_stage(path: Path) -> Path:
    """The folder of RUNS/NAME/STAGE, finished or not, by what the run's record says of it."""
    from ingot.workspace.files import read_json
    from ingot.workspace.runs import RUN

    if path.is_dir():
        return path
    try:
        stages = read_json(path.parent / RUN)["stages"]
        known = {str(stage["name"]): path.parent / str(stage["folder"]) for stage in stages}
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    if path.name not in known:
        fix = f"stages of that run: {', '.join(known)}" if known else "give RUNS/NAME/STAGE, or a stage's folder"
        raise RecipeError(f"there is no stage {path}", fix=fix)
    return known[path.name]
