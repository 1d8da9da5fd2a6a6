"""Finds the Arrow and Parquet files behind data sets of the Hugging Face `datasets` library.

a folder by `save_to_disk`      state.json names its Arrow files; a DatasetDict has one such folder a split
a folder of Parquet or Arrow    as on the hub: files whose path names the split, or all of them
a name on the hub               `datasets.load_dataset` puts Arrow files into its cache
"""

from __future__ import annotations

import json
import re
from typing import Any

import fsspec

from ingot.data.read.config import DatasetSource
from ingot.data.read.find import FoundFile, find
from ingot.workspace.errors import DataError, IngotError
from ingot.workspace.packages import pip_install


def dataset_files(source: DatasetSource) -> list[tuple[FoundFile, str]]:
    """The files of one split of the data set, with the format of each."""
    file_system, folder = fsspec.core.url_to_fs(source.dataset)
    if not file_system.isdir(folder):
        return hub_files(source)
    if source.configuration is not None:
        raise DataError(
            f"configuration: {source.configuration}: a folder has none, only data sets of the hub",
            place=f"sources: {source.name}: {source.dataset}",
            fix="leave it out, or name the folder of the configuration",
        )
    if file_system.exists(f"{folder}/dataset_dict.json"):
        known = json.loads(file_system.cat_file(f"{folder}/dataset_dict.json"))["splits"]
        if source.split not in known:
            raise no_split(source, known)
        return saved_files(f"{source.dataset.rstrip('/')}/{source.split}", source)
    if file_system.exists(f"{folder}/state.json"):
        return saved_files(source.dataset.rstrip("/"), source)
    found = find(source.dataset, f"sources: {source.name}")
    found = [file for file in found if file.path.endswith((".parquet", ".arrow"))]
    of_split = [file for file in found if source.split in re.split(r"[/._-]", file.relative)]
    if not (of_split or found):
        raise DataError(
            "neither a saved data set nor Parquet or Arrow files",
            place=source.dataset,
            fix="give a folder made by `Dataset.save_to_disk`, or use {files: …}",
        )
    return [(file, file.path.rpartition(".")[2]) for file in of_split or found]


def saved_files(folder: str, source: DatasetSource) -> list[tuple[FoundFile, str]]:
    """The Arrow files of a folder by `save_to_disk`, in its order."""
    file_system, inside = fsspec.core.url_to_fs(folder)
    state: dict[str, Any] = json.loads(file_system.cat_file(f"{inside}/state.json"))
    if state.get("_split") not in (None, source.split):
        raise no_split(source, [state["_split"]])
    names = [entry["filename"] for entry in state["_data_files"]]
    return [(FoundFile(f"{folder}/{name}", name, int(file_system.size(f"{inside}/{name}"))), "arrow") for name in names]


def hub_files(source: DatasetSource) -> list[tuple[FoundFile, str]]:
    """The Arrow files of a data set of the hub, fetched into the cache of the `datasets` library."""
    from pathlib import Path

    try:
        import datasets
    except ImportError:
        raise IngotError("data sets of the hub need the package `datasets`", fix=pip_install("datasets")) from None
    try:
        loaded = datasets.load_dataset(source.dataset, source.configuration, split=source.split)
    except (OSError, ValueError, RuntimeError) as error:  # no such data set, no such split, no network
        raise DataError(
            f"no folder of this name, and the hub does not give it ({str(error)[:200]})",
            place=f"sources: {source.name}: {source.dataset}",
            fix="check the name and the network, or give a folder made by `save_to_disk`",
        ) from None
    files = [Path(entry["filename"]) for entry in loaded.cache_files]
    return [(FoundFile(str(path), path.name, path.stat().st_size), "arrow") for path in files]


def no_split(source: DatasetSource, known: list[str]) -> DataError:
    """There is no such split."""
    return DataError(
        f"there is no split {source.split!r}", place=source.dataset, fix=f"give `split`: {' or '.join(known)}"
    )
