"""`ingot model`: the published systems as presets, what any model is made of, and new tokens or templates for one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingot.cli.convert import ForceOption, OutArgument, SourceArgument, convert, show_written
from ingot.cli.given import refuse_given
from ingot.cli.help import App
from ingot.cli.show import print_json
from ingot.workspace.errors import RecipeError
from ingot.workspace.runs import find_checkpoint

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig
    from ingot.model.presets.preset import Preset

model_app = App(
    name="model",
    help="List published models as presets; show what a model is made of; give one tokens or a chat template.",
    no_args_is_help=True,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LENGTH = 4096
FILES = (".yaml", ".yml", ".gguf")  # a name that ends so is no preset
TEMPLATE_HELP = "ingot, chatml, llama3, qwen3, harmony, smollm3, hermes4, plain, r1_zero, or a Jinja file."
TemplateOption = Annotated[str | None, typer.Option("--template", metavar="TEMPLATE", help=TEMPLATE_HELP)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An option of the template, such as assistant=me; may be repeated."
    ),
]


class NewRowStart(StrEnum):
    """What the rows of new tokens begin as."""

    mean = "mean"
    words = "words"


LengthOption = Annotated[
    int,
    typer.Option("--length", metavar="N", min=1, help="Sequence length for FLOPs, at most the context."),
]


@model_app.command("list")
def list_models(length: LengthOption = LENGTH, as_json: JsonOption = False) -> None:
    """List all presets with parameters, context, cache and training FLOPs per token."""
    from ingot.cli.show_model import facts, show_list
    from ingot.model.count import count
    from ingot.model.presets.preset import presets

    found = [(preset, count(preset.model)) for preset in presets()]
    if as_json:
        print_json([{"name": preset.name, "mini": preset.mini} | facts(counted, length) for preset, counted in found])
    else:
        show_list(found, length)


@model_app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A preset, a run or a stage of it, a checkpoint, a recipe or a file of model options.",
            show_default=False,
        ),
    ],
    length: LengthOption = LENGTH,
    as_json: JsonOption = False,
) -> None:
    """Show one model: shape, layers, parameters by part, cache, and published counts."""
    from ingot.cli.show_model import facts, show_model
    from ingot.model.count import count

    config, preset = find_model(name)
    counted = count(config)
    if as_json:
        known: dict[str, Any] = preset.model_dump(mode="json", exclude={"model"}) if preset else {"name": name}
        parts = {part: {"total": size.total, "active": size.active} for part, size in counted.parts.items()}
        print_json(known | facts(counted, length) | {"parts": parts, "model": config.model_dump(mode="json")})
    else:
        show_model(name, counted, preset, length)


@model_app.command("grow")
def grow_command(
    context: typer.Context,
    source: SourceArgument,
    out: OutArgument,
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="LIST", help="think, tools, turns, or names such as <scratchpad>.")
    ] = "think,tools,turns",
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="FOLDER", help="Also its tokens: one that `ingot tokenizer extend` made."),
    ] = None,
    template: TemplateOption = None,
    options: SetOption = None,
    start: Annotated[
        NewRowStart,
        typer.Option("--start", help="What new rows begin as: the mean of all, or of the words of the name."),
    ] = NewRowStart.mean,
    force: ForceOption = False,
) -> None:
    """Add special tokens to a model: tokenizer, embedding and head; the old ones keep their weights."""
    from ingot.checkpoints.grow import grow_model

    if template is None:
        refuse_given(context, ("options",), "without --template", "name the template whose options they are")
    wanted = [name.strip() for name in tokens.split(",") if name.strip()]
    convert(
        lambda progress, stop: grow_model(
            find_checkpoint(source),
            out,
            tokens=wanted,
            tokenizer=tokenizer,
            template=template,
            template_options=_options(options),
            start=start.value,
            replace=force,
            progress=progress,
            stop=stop,
        )
    )
    show_written("checkpoint", out)


@model_app.command("template")
def template_command(
    context: typer.Context,
    source: SourceArgument,
    out: OutArgument,
    template: Annotated[
        str | None,
        typer.Argument(metavar="[TEMPLATE]", help=TEMPLATE_HELP + " Without one, the model's own.", show_default=False),
    ] = None,
    options: SetOption = None,
    chat_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="How the model writes thinking and tool calls: a name (`ingot model formats`), a YAML file, or file.py:NAME. "
            "Without it, as the template shows.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a model with another chat template, or with a chat format that its template does not show."""
    from ingot.checkpoints.grow import grow_model

    if template is None:
        refuse_given(context, ("options",), "without a template", "name the template whose options they are")
    if template is None and chat_format is None:
        raise RecipeError(
            "nothing to change", place="ingot model template", fix="name a template, or a chat format with --format"
        )
    convert(
        lambda progress, stop: grow_model(
            find_checkpoint(source),
            out,
            template=template,
            template_options=_options(options),
            chat_format=chat_format,
            replace=force,
            progress=progress,
            stop=stop,
        )
    )
    show_written("checkpoint", out)


@model_app.command("formats")
def formats_command(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A checkpoint, a Hugging Face or tokenizer folder, or a GGUF file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the chat formats, or say which one a model has and how that was found."""
    from ingot.cli.show_formats import show_format, show_formats

    show_formats() if model is None else show_format(model)


def _options(given: list[str] | None) -> dict[str, Any]:
    """`assistant=me` and `keep_thinking=false` as values."""
    import json

    from ingot.workspace.errors import RecipeError

    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise RecipeError(f"{one!r} sets nothing", place="--set", fix="write it like assistant=me")
        try:
            found[name] = json.loads(value)
        except ValueError:  # a text needs no quotes
            found[name] = value
    return found


def find_model(name: str) -> tuple[ModelConfig, Preset | None]:
    """The model that a name or path stands for; a name of a preset is not looked for on disk."""
    from ingot.model.presets.data import names
    from ingot.model.presets.preset import load_preset
    from ingot.workspace.errors import ArtifactError

    path = find_checkpoint(Path(name))
    if name in names() or not (path.exists() or path.suffix in FILES or len(path.parts) > 1):
        preset = load_preset(name)
        return preset.model, preset
    if not path.exists():
        raise ArtifactError("there is no such file or folder", place=name, fix="`ingot model list` shows the presets")
    if path.suffix in (".yaml", ".yml"):
        return _read_yaml(path), None
    from ingot.checkpoints.checkpoint import open_model

    return open_model(path).config, None


def _read_yaml(path: Path) -> ModelConfig:
    """The model of a recipe (of the first stage that starts one), or of a file that holds only a model's options."""
    from ingot.model.config import ModelConfig
    from ingot.recipe.load import load_recipe
    from ingot.recipe.problems import Problems
    from ingot.recipe.read import read_file
    from ingot.recipe.validate import validate
    from ingot.train.pretrain_config import PretrainConfig
    from ingot.workspace.errors import RecipeError

    problems = Problems()
    tree = read_file(path, problems)
    problems.raise_if_any()
    if "stages" in tree.entries:
        configs = (stage.config for stage in load_recipe(path).stages)
        models = [config.model for config in configs if isinstance(config, PretrainConfig) and config.model is not None]
        if not models:
            raise RecipeError("no stage of the recipe starts a model", place=str(path), fix="give a checkpoint instead")
        return models[0]
    config = validate(ModelConfig, tree.entries.get("model", tree), "model", problems)
    problems.raise_if_any()
    assert isinstance(config, ModelConfig)
    return config
