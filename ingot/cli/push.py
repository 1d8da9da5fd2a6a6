"""`ingot push`: write a model to the Hugging Face hub, with a card made of its recipe, its scores and its claims."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.cli.convert import Dtype, DtypeOption, SourceArgument, chosen_dtype, convert
from ingot.workspace.errors import ArtifactError
from ingot.workspace.runs import find_checkpoint, find_scores

if TYPE_CHECKING:
    from ingot.workspace.interrupt import StopSignal
    from ingot.workspace.progress import Progress

MAIN = "main"


def push_command(
    source: SourceArgument,
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The model's name on the hub.", show_default=False)],
    private: Annotated[bool, typer.Option("--private", help="Only its organisation may see it.")] = False,
    revision: Annotated[str, typer.Option("--revision", metavar="BRANCH", help="The branch to write to.")] = MAIN,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            "--scores", metavar="RUN", help="Further scores for the card: an eval's run or stage; may be repeated."
        ),
    ] = None,
    model_type: Annotated[
        str | None, typer.Option("--as", metavar="MODEL_TYPE", help="Hugging Face model type, or FILE.py:NAME.")
    ] = None,
    dtype: DtypeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the export and print the card; write nothing.")
    ] = False,
) -> None:
    """Write a model to the Hugging Face hub, with a card made of its recipe, scores and claims."""
    from ingot.report.card import make_card, measured

    _check_name(name)
    found = find_checkpoint(source)
    if not found.exists():
        raise ArtifactError(
            "there is no such model", place=str(source), fix="give a run, a stage of it, or a checkpoint"
        )
    folders = [find_scores(each) for each in scores or ()]
    card = make_card(name, found, folders)
    for each in folders:
        if (other := measured(each)) is not None and _stage(other) != _stage(found):
            typer.echo(f"warning: the scores in {each} are of {other}, and the model is {found}", err=True)
    if dry_run:
        from ingot.checkpoints.convert import plan_export

        plan_export(found, model_type, dtype=chosen_dtype(dtype))
        typer.echo(card)
        return
    with tempfile.TemporaryDirectory(prefix="ingot-push-") as scratch:
        folder = Path(scratch) / "model"
        _export(found, folder, model_type, dtype)
        (folder / "README.md").write_text(card, encoding="utf-8")
        typer.echo(f"pushed: {_upload(folder, name, private=private, revision=revision)}")
    at = "" if revision == MAIN else f"@{revision}"
    typer.echo(f"next:\n  ingot chat {name}{at}")


def _check_name(name: str) -> None:
    """Refuse what cannot be a name on the hub, without asking it."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        fix = "write ORG/NAME, with letters, digits, dots, - and _"
        raise ArtifactError("this cannot be a name on the hub", place=name, fix=fix) from error


def _stage(checkpoint: Path) -> Path:
    """The folder of the stage that holds a checkpoint, or the checkpoint itself."""
    path = checkpoint.resolve()
    return path.parent if path.name == "checkpoint" else path


def _export(source: Path, folder: Path, model_type: str | None, dtype: Dtype | None) -> None:
    from ingot.checkpoints.convert import export_model

    def work(progress: Progress, stop: StopSignal) -> Path:
        return export_model(
            source, folder, model_type=model_type, dtype=chosen_dtype(dtype), progress=progress, stop=stop
        )

    convert(work)


def _upload(folder: Path, name: str, *, private: bool, revision: str) -> str:
    """Make the repository and the branch where they are missing, and one commit of all files; returns its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    of_its_library = HfHubHTTPError.__mro__[1]  # what the client's HTTP library raises where there is no connection
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        if private and not api.model_info(name).private:
            fix = "make it private on the hub, choose another name, or leave --private out"
            raise ArtifactError("the model is on the hub, and public", place=name, fix=fix)
        if revision != MAIN:
            api.create_branch(name, branch=revision, exist_ok=True)
        done = api.upload_folder(repo_id=name, folder_path=folder, revision=revision, commit_message="ingot push")
    except (OSError, ValueError, of_its_library) as error:  # ValueError: what cannot be a name
        fix = "look at the name and the network; to write needs a token: `hf auth login`, or HF_TOKEN"
        raise ArtifactError(
            f"the hub did not take it: {str(error).splitlines()[0][:200]}", place=name, fix=fix
        ) from error
    return str(done.commit_url)
