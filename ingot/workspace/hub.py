"""Names of models on the Hugging Face hub, `ORG/MODEL` or `ORG/MODEL@REVISION`, as folders of its cache.

A path that exists wins, and so does the first word if there is a folder of that name here: `runs/sft` is a run, or a mistake.
A snapshot is a folder named by its commit. Stages know it by its content, so that a branch that has moved is other work.

Cache, token, mirror and being offline are the client's: HF_HOME, HF_TOKEN or `hf auth login`, HF_ENDPOINT, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import re
from pathlib import Path

from ingot.workspace.errors import ArtifactError
from ingot.workspace.packages import install_extra, program

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[A-Za-z0-9][\w./-]*)?", re.ASCII)
OF_HERE = ("runs", "checkpoints", "models")  # usual folders here: what is not below them is a mistake, and no name
FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
"""What a model is read from; weights in other formats beside these are not fetched."""


def is_hub_name(path: Path) -> bool:
    """Whether a path that does not exist can be the name of a model on the hub."""
    own = path.suffix in (".gguf", ".yaml", ".yml", ".json", ".jsonl", ".py")
    return (
        NAME.fullmatch(str(path)) is not None
        and not own
        and path.parts[0] not in OF_HERE
        and not Path(path.parts[0]).exists()
    )


def fetch_model(name: str) -> Path:
    """The folder of a model's snapshot; what is not in the cache is fetched, with the client's progress bars."""
    repository, _, revision = name.partition("@")
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise ArtifactError(
            "no such path, and no client for models of the hub", place=name, fix=install_extra("hub")
        ) from None
    try:
        found = snapshot_download(repository, revision=revision or None, allow_patterns=FILES, ignore_patterns=["*/*"])
    except errors.GatedRepoError as error:
        fix = f"ask for access at https://huggingface.co/{repository}, then `hf auth login`, or set HF_TOKEN"
        raise ArtifactError("the hub gives this model only to those who were let in", place=name, fix=fix) from error
    except errors.RevisionNotFoundError as error:
        fix = "give a branch, a tag or a commit after @, or leave it out"
        raise ArtifactError(f"the model has no revision {revision}", place=name, fix=fix) from error
    except errors.RepositoryNotFoundError as error:
        fix = "check the path and the name; a private model needs `hf auth login`, or HF_TOKEN"
        raise ArtifactError("neither a path that exists nor a model of the hub", place=name, fix=fix) from error
    except (OSError, ValueError) as error:  # ValueError: what cannot be a name
        local = repository.rpartition("/")[2]
        fix = f"where there is a network: {program('hf')} download {repository} --local-dir {local}; then give {local}"
        problem = (
            f"no such path, and the hub cannot be asked for a model of this name ({str(error).splitlines()[0][:200]})"
        )
        raise ArtifactError(problem, place=name, fix=fix) from error
    if not (Path(found) / "config.json").is_file():
        raise ArtifactError(
            "the hub's repository has no config.json", place=name, fix="name one with a model in safetensors"
        )
    return Path(found)
