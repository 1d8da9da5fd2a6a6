"""`ingot eval`: measure any model with suites, list the suites, compare what was measured.

ingot eval MODEL --suite gsm8k,mmlu --limit 100        a checkpoint, a Hugging Face folder, a GGUF file
ingot eval MODEL my_suite.yaml                         a suite that is data alone
ingot eval --endpoint http://127.0.0.1:8000/v1 --model NAME --suite ifeval
ingot eval FILE.yaml                                   the eval stages of a recipe, or a file of options
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingot.cli.eval_compare import DataOption, LimitOption, compare_command, follow_command, subset_command
from ingot.cli.eval_signal import signal_command
from ingot.cli.given import refuse_given, was_given
from ingot.cli.help import App, CommandGroup
from ingot.cli.run_stages import run_stages
from ingot.cli.show import console, print_json
from ingot.workspace.errors import RecipeError
from ingot.workspace.runs import find_checkpoint

if TYPE_CHECKING:
    pass

RECIPES = (".yaml", ".yml")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class EvalGroup(CommandGroup):
    """`ingot eval FILE.yaml` runs a recipe's eval stages; `ingot eval MODEL` measures a model."""

    def named(self, args: list[str]) -> list[str]:
        """The words with the command that they leave out."""
        if not args or args[0] in self.commands:
            return args
        return ["recipe" if args[0].endswith(RECIPES) else "model", *args]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_help = args[:1] and args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if wants_help else self.named(args))


eval_app = App(
    name="eval",
    help="Measure a model with suites, list the suites, compare two models.",
    short_help="Measure a model with eval suites.",
    epilog="`ingot eval MODEL --suite NAME,NAME` measures a model, `ingot eval FILE.yaml` runs a recipe's eval stages.",
    no_args_is_help=True,
    cls=EvalGroup,
)


eval_app.command("compare")(compare_command)
eval_app.command("subset")(subset_command)
eval_app.command("follow")(follow_command)
eval_app.command("signal")(signal_command)


@eval_app.command("model")
def model_command(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="Checkpoint, stage or Hugging Face folder, or a GGUF file.")
    ] = "",
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[SUITE.yaml]...", help="Suites that are data alone.")
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            metavar="NAMES",
            help="Suites, with commas between: names, file.py:Name, file.yaml, lm_eval:TASK.",
        ),
    ] = None,
    limit: LimitOption = None,
    data: DataOption = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="A server with OpenAI's API, as in http://…/v1.")
    ] = None,
    model_name: Annotated[
        str, typer.Option("--model", metavar="NAME", help="The model's name on that server.")
    ] = "model",
    key_variable: Annotated[
        str | None, typer.Option("--key-variable", metavar="NAME", help="Environment variable with the server's key.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="FOLDER", help="Tokenizer of a server's model.")
    ] = None,
    form: Annotated[
        str, typer.Option("--form", metavar="auto|text|chat", help="Ask in plain text or in a conversation.")
    ] = "auto",
    thinking: Annotated[
        str, typer.Option("--thinking", metavar="task|on|off|both", help="Whether it thinks first; both: side by side.")
    ] = "task",
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where it runs.")] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", metavar="auto|float32|bfloat16", help="Precision of the model's weights.")
    ] = "auto",
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other option, as in suites.0.shots=5; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of sampling.")] = None,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder that holds the run folders.")] = Path(
        "runs"
    ),
    as_json: JsonOption = False,
) -> None:
    """Measure a model, or a server's, with suites; the scores and answers are kept below the run folder."""
    from ingot.recipe.single import make_stage

    data_suites = list(map(str, files or ()))
    if endpoint is not None and model.endswith(RECIPES):  # the first word is then no model
        model, data_suites = "", [model, *data_suites]
    if wrong := [name for name in data_suites if not name.endswith(RECIPES)]:
        fix = f"write --suite {wrong[0]}; suites after the model are YAML files"
        raise RecipeError(f"{wrong[0]} is no YAML file", place="ingot eval", fix=fix)
    if (endpoint is None) == (not model):
        raise RecipeError("give a model or --endpoint", place="ingot eval", fix="ingot eval MODEL --suite gsm8k,mmlu")
    if endpoint is None:
        refuse_given(
            context, ("model_name", "key_variable", "tokenizer"), "without --endpoint: MODEL is what is measured"
        )
    else:
        refuse_given(context, ("device", "precision"), "with --endpoint: the server computes")
    names = [*data_suites, *(name for text in suite or () for name in text.split(",") if name)]
    if not names:
        raise RecipeError("no suite is named", place="--suite", fix="`ingot eval list` has them: --suite gsm8k,mmlu")
    values: dict[str, Any] = {
        "limit": limit,
        "data": "" if data is None else str(data.resolve()),
        "form": form,
        "thinking": thinking,
        "device": device,
        "precision": precision,
        "tokenizer": "" if tokenizer is None else str(tokenizer.resolve()),
    }
    from ingot.evals.bases.suites import entry_of  # here, because it imports pydantic

    options: dict[str, Any] = {"suites": [entry_of(name) for name in names]}
    options |= {name: value for name, value in values.items() if was_given(context, name)}
    inputs = {}
    if endpoint is not None:
        options["endpoint"] = {"url": endpoint, "model": model_name, "api_key_variable": key_variable}
    else:
        found = find_checkpoint(Path(model))
        if not found.exists():
            fix = "give a run, a stage of it (RUN/STAGE), a checkpoint, a Hugging Face folder or a GGUF file"
            raise RecipeError(f"there is no model {model}", place="ingot eval", fix=fix)
        inputs["checkpoint"] = str(found)
    name = _run_name(model_name if endpoint is not None else Path(model).name)
    recipe = make_stage("eval", name, options, set or (), inputs=inputs, seed=seed)
    run_stages(recipe, runs, as_json=as_json, report=False)


def _run_name(model: str) -> str:
    """A folder name for the runs of a model."""
    return "eval-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model")


@eval_app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the suites: what each measures, and where its questions come from."""
    from ingot.evals.bases.file_suite import FileSuite
    from ingot.evals.bases.suites import SUITES

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "about": (kind.__doc__ or "").strip().split("\n")[0],
            "files": list(kind.local) if issubclass(kind, FileSuite) else [],
            "data_sets": list(kind.hub) if issubclass(kind, FileSuite) else [],
        }
        for name, kind in SUITES.builtin().items()
    ]
    if as_json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table("suite", "what it measures", "questions", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(row["name"], row["about"], _source(row["files"], row["data_sets"]))
    console().print(table)
    typer.echo(
        "besides: file.py:Name and file.yaml of your own, and lm_eval:TASK for any task of the LM evaluation harness"
    )


def _source(files: Sequence[str], data_sets: Sequence[str]) -> str:
    return "; ".join(filter(None, [*files[:1], *data_sets[:1]])) or "generated, or given"
