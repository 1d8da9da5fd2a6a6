"""The commands and their options. Each imports what it needs when it runs, so that `ingot --help` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ingot import __version__
from ingot.cli.chat import chat_command
from ingot.cli.classifier import classifier_app
from ingot.cli.convert import export_command, import_command
from ingot.cli.env import env_app
from ingot.cli.eval import eval_app, show_run
from ingot.cli.given import refuse_given
from ingot.cli.help import App, Group
from ingot.cli.merge import merge_command
from ingot.cli.model import model_app
from ingot.cli.new import new_command
from ingot.cli.run_stages import run_stages
from ingot.cli.serve import serve_command
from ingot.cli.show import command_line, print_json, show_checks, show_curation_plans, show_layouts
from ingot.cli.sweep import sweep_command
from ingot.cli.tokenizer import tokenizer_app
from ingot.cli.ui import ui_command
from ingot.cli.watch import HANG_AFTER, HangOption, watch_command, watch_this
from ingot.recipe.stages import STAGES
from ingot.workspace.errors import IngotError, RecipeError
from ingot.workspace.runs import find_stage
from ingot.workspace.stage import Stage


class _Commands(Group):
    """The commands in the order below; stages in the order of the data flow."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return [name for name in names if name not in STAGES] + [kind for kind in STAGES if kind in names]


app = App(
    name="ingot",
    cls=_Commands,
    help="Train a language model that thinks and calls tools, from raw text to a server.",
    epilog="Start with: ingot run recipes/quickstart.yaml. `ingot COMMAND --help` lists a command's options.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(model_app)
app.add_typer(classifier_app)
app.add_typer(env_app)

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.KEY=VALUE", help="Set an option of the recipe; may be repeated."),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="ROLE=PATH", help="Input of the stage: an artifact or a stage's folder; may be repeated."
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="Seed to use instead of the file's.")
]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder that holds the run folders.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would run; write nothing.")]
RUNS = Path("runs")
STAGES_PANEL = "Stages: run one by itself"
STAGE_FILE = "A recipe, or a YAML file of this stage's options."


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ingot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    context: typer.Context,
    recipe: RecipeArgument,
    set: SetOption = None,
    from_stage: Annotated[
        str | None, typer.Option("--from", metavar="STAGE", help="Run this stage and all later ones again.")
    ] = None,
    to_stage: Annotated[str | None, typer.Option("--to", metavar="STAGE", help="Stop after this stage.")] = None,
    runs: RunsOption = RUNS,
    watched: Annotated[
        bool, typer.Option("--watch", help="Restart it from its last checkpoint when it dies or hangs.")
    ] = False,
    hang_after: HangOption = HANG_AFTER,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, help="Train with this many processes on this machine.")
    ] = 1,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a recipe and write its report; reuse finished stages, resume an unfinished one."""
    from ingot.recipe.load import load_recipe
    from ingot.train.parallel.launch import is_ours, start_processes

    if not watched:
        refuse_given(context, ("hang_after",), "without --watch", "add --watch, or leave it out")
    loaded = load_recipe(recipe, set or ())
    if watched and not dry_run:
        watch_this(runs / loaded.name, hang_after)
    if processes > 1 and not dry_run and not is_ours():
        raise typer.Exit(start_processes(processes, say=lambda text: typer.echo(text, err=True)))
    run_stages(loaded, runs, as_json=as_json, report=True, from_stage=from_stage, to_stage=to_stage, dry_run=dry_run)


app.command("sweep")(sweep_command)


@app.command()
def plan(
    recipe: RecipeArgument,
    set: SetOption = None,
    runs: RunsOption = RUNS,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine's speed first (about a second).")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=1, help="Find the best layout on this many GPUs.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="KIND", help="Kind of GPU: a100, h100, h200, h800 or b200; h100 if only --gpus is given."
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="PRICE", min=0.0, help="Price of a GPU-hour, in any currency.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the stages of a recipe with status, memory, speed and cost; run nothing."""
    from ingot.cli.show_plan import show_plan
    from ingot.planner.plan import make_plan
    from ingot.recipe.load import load_recipe

    loaded = load_recipe(recipe, set or (), absent=True)
    made = make_plan(loaded, runs, measure=measure, gpu=gpu, gpus=gpus, price=price)
    if as_json:
        print_json(made.as_json())
    else:
        show_plan(made)


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder or name.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File to write; default: RUN/report.html.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="Also write the curves as TensorBoard events.")
    ] = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run as one HTML file that needs no network."""
    from ingot.report.build import build

    folder = run_folder if run_folder.exists() else runs / run_folder
    if not folder.is_dir():
        raise _no_such_run(run_folder, runs)
    page = build(folder, out)
    if tensorboard is not None:
        from ingot.report.tensorboard import export_tensorboard

        export_tensorboard(folder, tensorboard)
    if as_json:
        print_json({"report": str(page)} | ({} if tensorboard is None else {"tensorboard": str(tensorboard)}))
    else:
        typer.echo(f"report: {page}")
        if tensorboard is not None:
            typer.echo(f"curves: {tensorboard}\nnext:\n  {command_line('tensorboard', '--logdir', tensorboard)}")
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _no_such_run(name: Path, runs: Path) -> RecipeError:
    from ingot.workspace.nearest import suggestion
    from ingot.workspace.runs import RUN

    known = sorted(path.parent.name for path in runs.glob(f"*/{RUN}"))
    fix = suggestion(name.name, known, f"runs in {runs}") if known else f"give a run folder, such as {runs}/NAME"
    return RecipeError(f"there is no run {name}", fix=fix)


@app.command()
def doctor(
    context: typer.Context,
    recipe: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECIPE", help="Also check this recipe, its data and one training step.", show_default=False
        ),
    ] = None,
    set: SetOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the stress test and the training step.")] = False,
    layouts: Annotated[
        str | None,
        typer.Option(
            "--layouts",
            metavar="PATTERN",
            help='Instead, train a tiny model in these layouts and compare with one process; "*": all, "tensor*": some.',
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=2, help="The most processes of a layout.")
    ] = 4,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where layouts run: cpu or cuda.")] = "auto",
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and, if given, a recipe; exit with 1 if something cannot work."""
    from itertools import chain

    if layouts is not None:
        if recipe is not None:
            raise IngotError("--layouts trains models of its own", place="ingot doctor", fix="leave the recipe out")
        refuse_given(context, ("set", "quick", "runs"), "with --layouts")
        raise typer.Exit(0 if show_layouts(layouts, device, processes, as_json=as_json) else 1)
    refuse_given(context, ("processes", "device"), "without --layouts")

    from ingot.planner.doctor import examine_machine, examine_recipe

    if recipe is None:
        refuse_given(context, ("set", "quick"), "without a recipe: the machine alone is looked at, which is quick")
    found = examine_recipe(recipe, set or (), runs, quick=quick) if recipe is not None else ()
    checks = list(chain(examine_machine(runs), found)) if as_json else show_checks(chain(examine_machine(runs), found))
    if as_json:
        print_json([check.as_json() for check in checks])
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


app.command("new")(new_command)
app.command("chat")(chat_command)
app.command("ui")(ui_command)
app.command("serve")(serve_command)
app.command("import")(import_command)
app.command("export")(export_command)
app.command("watch", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(watch_command)


def _add_stage_command(kind: Stage, to: typer.Typer, name: str) -> None:
    """`ingot KIND FILE` for one kind of stage, as the command `name` of `to`."""

    def command(
        file: Annotated[Path, typer.Argument(metavar="FILE", help=STAGE_FILE, show_default=False)],
        input: InputOption = None,
        set: SetOption = None,
        seed: SeedOption = None,
        runs: RunsOption = RUNS,
        dry_run: DryRunOption = False,
        as_json: JsonOption = False,
    ) -> None:
        from ingot.recipe.single import load_stage

        inputs = dict(_split_input(text) for text in input or ())
        recipe, names = load_stage(file, kind.kind, set or (), inputs=inputs, seed=seed)
        show = show_run if kind.kind == "eval" and not dry_run else None
        run_stages(recipe, runs, as_json=as_json, report=False, only=names, dry_run=dry_run, show=show)

    takes = [role + (" (optional)" if role in kind.optional else "") for role in kind.needs]
    help_text = f"{kind.does} Reads: {', '.join(takes) or 'nothing'}. Writes: {', '.join(kind.makes)}."
    panel = STAGES_PANEL if to is app else None
    to.command(name, help=help_text, short_help=kind.does, rich_help_panel=panel)(command)


@app.command(rich_help_panel=STAGES_PANEL, short_help=STAGES["curate"].does)
def curate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=STAGE_FILE, show_default=False)],
    set: SetOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Number of processes; default: one per core.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="Where to run: local or ray; default: the file's.")
    ] = None,
    seed: SeedOption = None,
    runs: RunsOption = RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print sources, columns, time and disk; write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read raw text, remove bad documents and copies, record the reason for each. Writes: documents."""
    from ingot.recipe.single import load_stage

    options = {key: value for key, value in (("workers", workers), ("engine", engine)) if value is not None}
    recipe, names = load_stage(file, "curate", set or (), options=options, seed=seed)
    if dry_run:
        show_curation_plans([stage.config for stage in recipe.stages if stage.name in names], as_json=as_json)
    else:
        run_stages(recipe, runs, as_json=as_json, report=False, only=names)


@app.command(rich_help_panel=STAGES_PANEL, short_help=STAGES["sft"].does)
def sft(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help=STAGE_FILE, show_default=False)],
    input: InputOption = None,
    set: SetOption = None,
    seed: SeedOption = None,
    show: Annotated[
        int | None,
        typer.Option("--show", metavar="N", min=1, help="Print N examples as they will be trained on; train nothing."),
    ] = None,
    runs: RunsOption = RUNS,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on conversations. Reads: checkpoint, conversations (optional). Writes: checkpoint."""
    from ingot.recipe.single import load_stage

    if show is not None:
        refuse_given(context, ("dry_run", "as_json"), "with --show, which prints examples")
    recipe, names = load_stage(file, "sft", set or (), inputs=dict(map(_split_input, input or ())), seed=seed)
    if show is None:
        run_stages(recipe, runs, as_json=as_json, report=False, only=names, dry_run=dry_run)
    else:
        from ingot.cli.show_examples import show_examples

        show_examples(recipe, names, runs, show)


for _kind in STAGES.values():
    if _kind.kind == "tokenizer":
        _add_stage_command(_kind, tokenizer_app, "train")
    elif _kind.kind == "eval":
        _add_stage_command(_kind, eval_app, "recipe")
    elif _kind.kind == "merge":  # models, not a file of options
        app.command("merge", rich_help_panel=STAGES_PANEL, short_help=_kind.does)(merge_command)
    elif _kind.kind not in ("curate", "sft"):  # they have commands of their own above
        _add_stage_command(_kind, app, _kind.kind)
app.add_typer(tokenizer_app, rich_help_panel=STAGES_PANEL)
app.add_typer(eval_app, rich_help_panel=STAGES_PANEL)


def _split_input(text: str) -> tuple[str, str]:
    role, equals, path = text.partition("=")
    if not (role and equals and path):
        raise RecipeError("an input needs a role and a path", place=f"--input {text}", fix="write --input ROLE=PATH")
    return role, str(find_stage(Path(path)))
