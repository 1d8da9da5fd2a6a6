"""Copies checkpoints to a URL in the background, while the run trains and writes the next checkpoint.

A round copies every kept checkpoint that the URL lacks and deletes there what the policy does not keep. Checkpoints that come
during a round wait for the next one, or are passed over if the policy has dropped them by then: a slow URL never makes the run
wait. A failure is reported and tried again in the next round; nothing that must be kept is deleted here before it is there.
"""

from __future__ import annotations

from pathlib import Path

from ingot.train.parallel.layout import Layout
from ingot.train.saving.background import Background
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.ranks import DEADLINE, Ranks
from ingot.train.saving.remote import Remote
from ingot.train.saving.steps import BEST, COPIES, Steps, numbers, step_name, steps_to_keep
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import write_json
from ingot.workspace.stage import StageFolder

RECORDS = ("metrics.jsonl", f"steps/{BEST}")


class Copier:
    """The copies of a stage's checkpoints. All ranks make one and call its methods together."""

    def __init__(self, url: str, folder: StageFolder, config: CheckpointsConfig, layout: Layout | None) -> None:
        self.url, self.folder, self.config = url, folder, config
        self.steps = Steps(folder.path)
        self.ranks = Ranks(layout)  # a channel of its own: the next checkpoint is written meanwhile
        self.remote = Remote(url, folder.path.name, self.ranks)
        self.copied: set[int] = set()  # what is there
        self.copying: set[int] = set()  # what must not be deleted here now
        self._background = Background(DEADLINE.total_seconds())

    def start(self, ranks: Ranks) -> None:
        """Begin a round, unless one is under way; `ranks` is the caller's channel."""
        if not ranks.once(lambda: self._background.busy):
            self._background.wait()
            self._background.start(self._try)

    def wait(self) -> None:
        """Wait until the round under way is over."""
        self._background.wait()

    def finish(self, final: Path) -> None:
        """Copy the stage's final checkpoint and what outlives the stage; here, a failure is an error."""
        self.wait()
        try:
            self._turn(final)
        except OSError as error:
            raise ArtifactError(
                f"the finished checkpoint could not be copied: {error}",
                place=self.url,
                fix="see that the URL can be written to and run again: the training is done, only the copy is made",
            ) from error

    def there(self) -> list[int]:
        """The steps of which there is a complete copy."""
        return self.ranks.once(lambda: numbers(self.remote.names()))

    def fetch(self, name: str, folder: Path) -> bool:
        """Copy a checkpoint back, if it is there and intact, with the stage's records if they are missing."""
        if not self.ranks.once(lambda: name in self.remote.names()):
            return False
        try:
            self.remote.download(name, folder)
        except ArtifactError as error:
            self.folder.progress.say(f"the copy of {name} at {self.url} is damaged and passed over: {error}")
            return False
        self.ranks.once(lambda: self.remote.get_records(self.folder.path, RECORDS))
        self.folder.progress.say(f"{name} was copied back from {self.url}")
        return True

    def forget_after(self, step: int) -> None:
        """The run goes on from `step`: later copies are damaged, and their names are needed again."""

        def remove() -> None:
            for later in (each for each in numbers(self.remote.names()) if each > step):
                self.remote.remove(step_name(later))

        self.ranks.once(remove)

    def _try(self) -> None:
        try:
            self._turn(None)
        except (OSError, ArtifactError) as error:
            self.folder.progress.say(
                f"copying checkpoints to {self.url} failed and is tried again at the next one: {error}"
            )

    def _turn(self, final: Path | None) -> None:
        finished = final is not None
        try:
            for name in self.ranks.once(lambda: self._missing(finished=finished)):
                self.remote.upload(self.steps.folder / name)
            if final is not None:
                self.remote.upload(final)
            self.copied = set(self.ranks.once(lambda: self._prune(finished=finished)))
        finally:
            self.copying = set()

    def _missing(self, *, finished: bool) -> list[str]:
        write_json(self.steps.folder / COPIES, {"url": self.url})
        here = self.steps.there()
        missing = steps_to_keep(here, self.config, self.steps.best_step(), finished=finished) - set(
            numbers(self.remote.names())
        )
        self.copying = missing
        return [step_name(step) for step in sorted(missing) if step in self.steps.there()]

    def _prune(self, *, finished: bool) -> list[int]:
        self.remote.put_records(self.folder.path, RECORDS)
        there = numbers(self.remote.names())
        keep = steps_to_keep(there, self.config, self.steps.best_step(), finished=finished)
        for step in set(there) - keep:
            self.remote.remove(step_name(step))
        return sorted(keep)
