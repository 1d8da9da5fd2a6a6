"""Finds what is meant: RUNS/NAME/STAGE a finished stage, RUNS/NAME its last checkpoint or scores, ORG/MODEL one of the hub.

What a name stands for is what the last run consisted of, by run.json (see ingot/recipe/record.py). A path that is no
such name is returned unchanged, so that the code that opens it reports what is wrong with it.
"""

from __future__ import annotations

from pathlib import Path

from ingot.workspace.files import read_json
from ingot.workspace.hub import fetch_model, is_hub_name

RUN = "run.json"


def find_stage(path: Path) -> Path:
    """The finished stage's folder that RUNS/NAME/STAGE stands for."""
    if path.exists():
        return path
    return _finished(path.parent).get(path.name, path)


def find_checkpoint(path: Path, *, fetch: bool = True) -> Path:
    """The same; for RUNS/NAME the last of its finished stages that made a checkpoint; for ORG/MODEL@REVISION its snapshot.

    Without `fetch` the hub is not asked.
    """
    if not (path / RUN).is_file():
        found = find_stage(path)
        return fetch_model(str(path)) if fetch and not found.exists() and is_hub_name(path) else found
    made = [folder for folder in _finished(path).values() if (folder / "checkpoint").exists()]
    return made[-1] if made else path


def find_scores(path: Path) -> Path:
    """The folder of an eval stage; for RUNS/NAME the last of its finished stages that has scores."""
    if not (path / RUN).is_file():
        return find_stage(path)
    made = [folder for folder in _finished(path).values() if (folder / "scores").exists()]
    return made[-1] if made else path


def find_adapter(path: Path) -> Path:
    """The adapter of a stage that trained one, given as a run or a stage; any other path is the adapter's own."""
    adapter = find_checkpoint(path) / "adapter"
    return adapter if adapter.is_dir() else path


def _finished(run: Path) -> dict[str, Path]:
    """The finished stages of a run by name, in its order; none if its record cannot be read."""
    from ingot.workspace.stage import DONE  # which imports pydantic: `ingot --help` does without

    try:
        stages = read_json(run / RUN)["stages"]
        folders = {str(stage["name"]): run / str(stage["folder"]) for stage in stages}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: folder for name, folder in folders.items() if (folder / DONE).is_file()}
