"""Reads and writes copies of checkpoints at an fsspec URL: s3://, gs://, hf://, file:// and others.

    URL/STAGE/step-0001000/…      a checkpoint as it is on disk; the manifest is written last, so one without it is none
    URL/STAGE/metrics.jsonl       and other records of the stage, as of the newest checkpoint

STAGE is the name of the stage's folder, which ends in the hash of all that it depends on: a run never finds another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fsspec.core import url_to_fs

from ingot.checkpoints.checkpoint import MANIFEST, verify_checkpoint
from ingot.train.saving.ranks import Ranks
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_file, inside, read_json


class Remote:
    """The copies of one stage. `ranks` divide the files among them; without, one process does it all."""

    def __init__(self, url: str, stage: str, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks(None)
        try:
            self.files, root = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ArtifactError(
                f"the URL cannot be used: {error}",
                place="checkpoints.copy_to",
                fix="use one that fsspec knows, and install what it asks for (s3://: s3fs, gs://: gcsfs)",
            ) from error
        self.root = PurePosixPath(root) / stage

    def names(self) -> list[str]:
        """The complete checkpoints there."""
        self.files.invalidate_cache()
        if not self.files.exists(str(self.root)):
            return []
        names = [PurePosixPath(each).name for each in self.files.ls(str(self.root), detail=False)]
        return sorted(name for name in names if self.files.exists(self._at(name, MANIFEST)))

    def upload(self, folder: Path) -> None:
        """Copy a complete checkpoint; the sizes of the copies are compared with the files'."""
        self.ranks.once(lambda: self.remove(folder.name))
        names = list(read_json(folder / MANIFEST))
        self.ranks.each(lambda: self._put(folder, names[self.ranks.rank :: self.ranks.world]))
        self.ranks.once(lambda: self._put(folder, [MANIFEST]))

    def download(self, name: str, folder: Path) -> None:
        """Copy a checkpoint back; it gets its name when it is complete and intact."""
        with self.ranks.folder(folder) as temporary:
            self.ranks.once(lambda: self._get(temporary, name, [MANIFEST]))
            names = list(read_json(temporary / MANIFEST))
            self.ranks.each(lambda: self._get(temporary, name, names[self.ranks.rank :: self.ranks.world]))
            self.ranks.each(lambda: verify_checkpoint(temporary, self.ranks.rank, self.ranks.world))

    def remove(self, name: str) -> None:
        """Delete a copy, or what there is of it; the manifest first, so that it is never taken for a whole one."""
        if self.files.exists(self._at(name, MANIFEST)):
            self.files.rm_file(self._at(name, MANIFEST))
        if self.files.exists(self._at(name)):
            self.files.rm(self._at(name), recursive=True)

    def put_records(self, stage: Path, names: Iterable[str]) -> None:
        """Copy these files of the stage as they are now, where they exist; the run may be writing to them."""
        for name in names:
            if (stage / name).exists():
                self._send(stage / name, str(self.root / name))

    def get_records(self, stage: Path, names: Iterable[str]) -> None:
        """Copy them back, where they are missing."""
        for name in names:
            if not (stage / name).exists() and self.files.exists(str(self.root / name)):
                with atomic_file(stage / name) as temporary:
                    self.files.get_file(str(self.root / name), str(temporary))

    def _put(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            file, target = folder / name, self._at(folder.name, name)
            self._send(file, target)
            self.files.invalidate_cache()
            size = self.files.size(target)
            if size != file.stat().st_size:
                raise OSError(f"{target} has {size} bytes, {file} has {file.stat().st_size}")

    def _send(self, file: Path, target: str) -> None:
        self.files.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
        self.files.put_file(str(file), target)

    def _get(self, folder: Path, name: str, names: Iterable[str]) -> None:
        for each in names:
            file = inside(folder, each, folder / MANIFEST)
            file.parent.mkdir(parents=True, exist_ok=True)
            self.files.get_file(self._at(name, each), str(file))

    def _at(self, *parts: str) -> str:
        return str(self.root.joinpath(*parts))
