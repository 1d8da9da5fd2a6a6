"""Tools with a user: customer service in a shop, by the retail tasks of tau-bench (Yao et al. 2024, arXiv 2406.12045).

Database, policy and tasks are those of tau2-bench.

The model is the agent: it has a policy, sixteen tools over a database, and a user who wants something. Each of the 114 tasks is
played `samples` times. `tau/retail` is the mean reward, `tau/retail/pass^k` the chance that all of k conversations succeed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.evals.bases.file_suite import DATA_VARIABLE
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Play
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, spread
from ingot.evals.scores.statistics import pass_hat_k
from ingot.evals.suites.tau.service import Service
from ingot.evals.suites.tau.user import ScriptedUser, SimulatedUser, User
from ingot.workspace.errors import CheckFailed, DataError
from ingot.workspace.files import fingerprint

FILES = ("retail_db.json", "retail_tasks.json", "retail_policy.md")


class Tau(Suite):
    """Customer service with tools and a simulated user (tau-bench, retail)."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    folder: str = Field("", description="a folder with retail_db.json, retail_tasks.json and retail_policy.md (or .gz)")
    user: EndpointConfig | None = Field(
        None,
        description="the server whose model plays the user; without one a script does, which only states and agrees",
    )
    user_temperature: float = Field(0.0, ge=0, description="sampling temperature of the user's model")
    samples: int = Field(1, ge=1, description="conversations of each task (k of pass^k)")
    temperature: float = Field(0.0, ge=0, description="sampling temperature of the agent; 0 is greedy")
    max_new_tokens: int = Field(512, ge=1, description="tokens of a turn at most")
    max_turns: int = Field(30, ge=1, description="turns of the agent at most")

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured."""
        return (
            {path.name: fingerprint(path) for path in sorted(Path(self.folder).glob("retail_*"))} if self.folder else {}
        )

    def measure(self, subject: Subject) -> Measuring:
        """The mean reward, its parts, and pass^k."""
        folder = self._folder(subject)
        database, tasks = (_read_json(folder, name) for name in FILES[:2])
        policy = _read(folder, FILES[2])
        rows: Sequence[dict[str, Any]] = subject.some(tasks)
        user: User = ScriptedUser() if self.user is None else SimulatedUser(self.user, self.user_temperature)
        service = Service.of(database, user)
        with ThreadPoolExecutor(1 if self.user is None else self.user.concurrency) as threads:
            openings = list(threads.map(lambda row: user.say(row["user_scenario"], ()) or "", rows))
        limits = Limits(self.max_new_tokens, subject.max_tokens, self.max_turns, tool_characters=20_000)
        plays = [
            Play(service.conversation(row, policy, opening), service, limits, self.temperature)
            for row, opening in zip(rows, openings, strict=True)
            for _ in range(self.samples)
        ]
        episodes: Sequence[Episode] = yield plays
        return Measured(tau_metrics(episodes), [_sample(each) for each in spread(episodes)])

    def _folder(self, subject: Subject) -> Path:
        data = subject.data or (Path(os.environ[DATA_VARIABLE]) if DATA_VARIABLE in os.environ else None)
        folder = Path(self.folder) if self.folder else data / "tau2" if data else None
        if folder is None or not any(folder.glob(f"{FILES[0]}*")):
            raise DataError(
                "its database is not there",
                place="suite tau" if folder is None else str(folder),
                fix=f"give --data FOLDER with tau2/ in it, or folder: PATH, with {', '.join(FILES)} of "
                "sierra-research/tau2-bench",
            )
        return folder


def tau_metrics(episodes: Sequence[Episode]) -> list[Metric]:
    """The metrics of conversations. One whose user's server failed is left out."""
    by_task: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for each in episodes:
        if not each.failed:
            by_task[f"retail-{each.task.data['id']}"].append(each.score.rewards)
    if not by_task:
        raise CheckFailed(
            f"the environment failed in every conversation: {episodes[0].score.error}", fix="look at the user's server"
        )
    metrics = [
        metric_of_units(name, {task: _mean([each[part] for each in group]) for task, group in by_task.items()}, label)
        for name, part, label in (
            ("tau/retail", "correct", "Customer service, solved"),
            ("tau/retail/database", "database", "Customer service, database right"),
            ("tau/retail/told", "told", "Customer service, user informed"),
        )
    ]
    k = min(map(len, by_task.values()))
    if k > 1:
        right = {task: round(sum(each["correct"] for each in group)) for task, group in by_task.items()}
        units = {task: pass_hat_k(len(by_task[task]), count, k) for task, count in right.items()}
        metrics.append(metric_of_units(f"tau/retail/pass^{k}", units, f"Customer service, all of {k} solved"))
    return metrics


def _read(folder: Path, name: str) -> str:
    """A file of the benchmark, or its compressed form; of bounded size."""
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole

    packed, plain = folder / f"{name}.gz", folder / name
    path = packed if packed.exists() else plain
    fix = "copy the file of sierra-research/tau2-bench again"
    try:
        with path.open("rb") as file:
            return whole(file, str(path)).decode("utf-8")
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror or error}", place=str(path), fix=fix) from error
    except (Unreadable, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read: {error}", place=str(path), fix=fix) from error


def _read_json(folder: Path, name: str) -> Any:
    text = _read(folder, name)
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        fix = "copy the file of sierra-research/tau2-bench again"
        raise DataError(f"the file is not JSON: {error}", place=str(folder / name), fix=fix) from error


def _sample(episode: Episode) -> Sample:
    said = [f"{message.role}: {message.content or message.tool_calls}" for message in episode.messages]
    expected = json.dumps(episode.task.data["evaluation_criteria"].get("actions"))
    name = f"retail-{episode.task.data['id']}"
    return Sample(name, "tau/retail", episode.task.question, "\n".join(said), expected, episode.score.correct)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
