"""`ingot env`: list environments, and try one before anything is trained on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ingot.cli.given import refuse_given
from ingot.cli.help import App
from ingot.cli.show import print_json
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from ingot.envs.environment import Environment
    from ingot.envs.episode import Episode
    from ingot.envs.rollout.episode_run import Limits
    from ingot.envs.rollout.policies import MessagePolicy, Policy
    from ingot.envs.task import Task
    from ingot.envs.trial import EnvironmentTrial
    from ingot.tokens.chat import ChatFormat

env_app = App(name="env", help="List environments; try one before it is trained on.", no_args_is_help=True)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SCRIPTED, SERVERS = "scripted", ("http://", "https://")
BYTES = 200_000  # of an episode: scripts are written in bytes


@env_app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the built-in environments: what they are, where their tasks come from, and what they offer."""
    from ingot.envs.environment import TASKS

    rows = [_facts(name, kind) for name, kind in TASKS.builtin().items()]
    if as_json:
        print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "tasks", "solutions", "what it is"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["name"], row["tasks"], "yes" if row["solutions"] else "no", row["about"])
    Console().print(table)
    typer.echo("your own: ingot env test my_env.py:Mine")


def _facts(name: str, kind: type[Environment]) -> dict[str, Any]:
    from ingot.envs.environment import Environment
    from ingot.envs.files import FileEnvironment
    from ingot.envs.rollout.external import LedEnvironment

    return {
        "name": name,
        "tasks": "files"
        if issubclass(kind, FileEnvironment)
        else "its own"
        if issubclass(kind, LedEnvironment)
        else "generated",
        "solutions": kind.solution is not Environment.solution,
        "about": (kind.__doc__ or "").strip().split("\n")[0],
    }


@env_app.command("test")
def test_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, FILE.py or FILE.py:Name.", show_default=False)],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the environment; may be repeated."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="POLICY", help="scripted, a checkpoint, a GGUF or Hugging Face model, or http://…/v1."
        ),
    ] = SCRIPTED,
    model_name: Annotated[str, typer.Option("--model", metavar="NAME", help="The model's name on a server.")] = "model",
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="Number of tasks.")] = 32,
    samples: Annotated[int, typer.Option("--samples", metavar="K", min=1, help="Samples of a model per task.")] = 1,
    split: Annotated[str, typer.Option("--split", metavar="train|test", help="Split to draw tasks from.")] = "train",
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="Sampling temperature of the model; 0 is greedy.")
    ] = 0.0,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Most tokens that the model writes in one turn.")
    ] = 512,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=2, help="Most tokens of an episode, prompt included.")
    ] = 4096,
    max_turns: Annotated[int, typer.Option("--max-turns", min=1, help="Most turns of the policy in an episode.")] = 8,
    pass_rates: Annotated[
        Path | None, typer.Option("--pass-rates", metavar="FILE", help="Write how often the model solves each task.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Try an environment: what does a policy earn, what do policies that know nothing earn, what is slow, what leaks.

    The exit code is 1 if there is a reason not to train on it.
    """
    from ingot.envs.pass_rates import earned, write_pass_rates
    from ingot.envs.rollout.rollout import Drawing
    from ingot.envs.trial import try_environment

    if policy == SCRIPTED:
        of_models = ("samples", "temperature", "max_new_tokens", "max_tokens", "pass_rates")
        refuse_given(context, of_models, "without a model", "name one with --policy")
    if not policy.startswith(SERVERS):
        refuse_given(context, ("model_name",), "without a server", "name one with --policy http://…/v1")
    else:
        refuse_given(context, ("max_tokens",), "with a server, which does not say how many tokens a prompt has")
    if split not in ("train", "test"):
        raise RecipeError(f"there is no split {split}", place="--split", fix="write train or test")
    environment = find_environment(name, set or ())
    chat, model = _chat_and_model(policy, model_name, max_tokens)

    def policies(environments: Mapping[str, Environment], tasks: Sequence[Task]) -> dict[str, Policy | MessagePolicy]:
        from ingot.envs.rollout.probes import Scripted, scripts

        tried = scripts(environments, chat, tasks)
        made: dict[str, Policy | MessagePolicy] = {each: Scripted(script, chat) for each, script in tried.items()}
        return made if model is None else made | {policy: model}

    def keep(name: str, episodes: Sequence[Episode]) -> None:
        if pass_rates is not None and name == policy:
            write_pass_rates(pass_rates, [(each.task, earned(each)) for each in episodes])

    trial = try_environment(
        environment,
        chat,
        policies,
        count=count,
        samples=samples,
        split=split,  # type: ignore[arg-type]  # checked above
        limits=_limits(policy, max_new_tokens, max_tokens, max_turns),
        drawing=Drawing(temperature),
        keep=keep,
    )
    if as_json:
        print_json(asdict(trial))
    else:
        _show(environment, trial)
    if trial.problems:
        raise typer.Exit(1)


def _limits(policy: str, max_new_tokens: int, max_tokens: int, max_turns: int) -> Limits:
    """What scripts write is measured in bytes; a server is told how many tokens it may write."""
    from ingot.envs.rollout.episode_run import Limits

    if policy == SCRIPTED:
        return Limits(BYTES, BYTES, max_turns)
    if policy.startswith(SERVERS):
        return Limits(max_new_tokens, BYTES, max_turns)
    return Limits(max_new_tokens, max_tokens, max_turns)


def find_environment(name: str, changes: Sequence[str]) -> Environment:
    """The environment of a name, with options; of a file that defines one environment, that one."""
    from ingot.envs.config import TasksConfig
    from ingot.recipe.problems import Problems
    from ingot.recipe.read import parse_changes, set_value
    from ingot.recipe.tree import Node
    from ingot.recipe.validate import validate
    from ingot.workspace.outside import anchor

    name = anchor(f"{name}:{_only_environment(Path(name))}" if name.endswith(".py") else name, Path.cwd())
    problems = Problems()
    options = Node({}, name)
    for change in parse_changes(changes, problems):
        options = set_value(options, change.path, change.value, problems)
    config = validate(TasksConfig, Node({name: options}, "ingot env"), "env", problems)
    problems.raise_if_any()
    assert config is not None
    (environment,) = (config.model_extra or {}).values()
    return cast("Environment", environment)


def _only_environment(path: Path) -> str:
    """The name of the environment that a file defines."""
    import ast

    if not path.is_file():
        raise RecipeError("there is no such file", place=str(path), fix="give FILE.py:Name")
    classes = [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1:
        found = ", ".join(classes) or "none"
        raise RecipeError(f"{path} defines {len(classes)} classes", fix=f"write FILE.py:Name, with Name from: {found}")
    return classes[0]


def _chat_and_model(policy: str, model_name: str, max_tokens: int) -> tuple[ChatFormat, Policy | MessagePolicy | None]:
    """The chat format and the model; for scripts and servers a format of bytes is enough."""
    from ingot.tokens.chat import ChatFormat
    from ingot.tokens.config import TokenizerConfig
    from ingot.tokens.train_tokenizer import train_tokenizer

    of_bytes = ChatFormat(train_tokenizer(["a"], TokenizerConfig(vocabulary_size=272)))
    if policy == SCRIPTED:
        return of_bytes, None
    if policy.startswith(SERVERS):
        from ingot.data.synthesize.config import EndpointConfig
        from ingot.envs.rollout.endpoint import EndpointPolicy

        return of_bytes, EndpointPolicy(EndpointConfig(url=policy, model=model_name), of_bytes)
    from ingot.inference.engine import Engine
    from ingot.inference.load import load_to_sample
    from ingot.workspace.runs import find_checkpoint

    path = Path(policy)
    model = load_to_sample(path if path.suffix == ".gguf" else find_checkpoint(path))
    if model.tokenizer is None:
        raise RecipeError(f"{policy} has no tokenizer", place="--policy", fix="give a checkpoint with one")
    return ChatFormat(model.tokenizer), Engine(model, slots=64, length=max_tokens)


def _show(environment: Environment, trial: EnvironmentTrial) -> None:
    from rich.console import Console
    from rich.table import Table

    typer.echo(f"{environment.kind}: {trial.tasks} tasks")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "policy",
        "solved",
        "reward",
        "± tasks",
        "± samples",
        "failed",
        "turns",
        "judge s",
        "tools s",
        "all s",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for each in trial.earned:
        seconds = (f"{each.seconds.get(part, 0.0):.3f}" for part in ("judging", "tools", "all"))
        within = "" if each.within is None else f"{each.within:.3f}"
        numbers = (f"{each.solved:.1%}", f"{each.reward:.3f}", f"{each.spread:.3f}", within)
        table.add_row(each.policy, *numbers, str(each.failed), f"{each.turns:.1f}", *seconds)
    Console(width=100).print(table)
    for note in trial.notes:
        typer.echo(f"note: {note}")
    for problem in trial.problems:
        typer.echo(f"problem: {problem}")
    if not trial.problems:
        typer.echo("no reason found not to train on it")
