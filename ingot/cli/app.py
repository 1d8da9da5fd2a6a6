"""The commands and their options. Each imports what it needs when it runs, so that `ingot --help` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.ablate import ablate_command
from ingot.cli.chat import chat_command
from ingot.cli.classifier import classifier_app
from ingot.cli.convert import export_command, import_command
from ingot.cli.env import env_app
from ingot.cli.eval import eval_app
from ingot.cli.given import refuse_given
from ingot.cli.help import App, CommandGroup
from ingot.cli.merge import merge_command
from ingot.cli.model import model_app
from ingot.cli.new import new_command
from ingot.cli.options import RUNS, DryRunOption, JsonOption, RunsOption, SetOption
from ingot.cli.push import push_command
from ingot.cli.run_stages import run_stages
from ingot.cli.scaling import scaling_app
from ingot.cli.serve import serve_command
from ingot.cli.show import command_line, print_json, show_checks, show_layouts
from ingot.cli.stage_command import add_stage_command
from ingot.cli.sweep import sweep_command
from ingot.cli.tokenizer import tokenizer_app
from ingot.cli.ui import ui_command
from ingot.cli.watch import HANG_AFTER, HangOption, watch_command, watch_this
from ingot.recipe.stages import STAGES
from ingot.workspace.errors import IngotError, RecipeError
from ingot.workspace.version import VERSION


class _Commands(CommandGroup):
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
app.add_typer(scaling_app)

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)]
STAGES_PANEL = "Stages: run one by itself"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ingot {VERSION}")
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
app.command("ablate")(ablate_command)


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
app.command("push")(push_command)
app.command("watch", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(watch_command)


app.command("merge", rich_help_panel=STAGES_PANEL, short_help=STAGES["merge"].does)(merge_command)
GROUPS = {"tokenizer": tokenizer_app, "eval": eval_app}
for _stage in STAGES.values():
    match _stage.command:
        case ():
            add_stage_command(_stage, app, _stage.kind, STAGES_PANEL)
        case (_group, _name):
            add_stage_command(_stage, GROUPS[_group], _name)
for _app in GROUPS.values():
    app.add_typer(_app, rich_help_panel=STAGES_PANEL)
