"""The inputs of each stage, and the hash that names its work.

A role of a stage is filled by what the stage says under `inputs` (the name of an earlier stage, or a path), else by
the latest earlier stage that makes the kind of artifact, else by the path that the recipe itself gives under `inputs`. The path
of a checkpoint may be the name of a model on the hub (workspace/hub.py).
A role that is not called after its artifact (a `teacher` is a checkpoint) must be named: the latest checkpoint as
teacher of itself would be a silent no-op. Options may stand in for it (`Config.supplies`: a teacher on a server).

    hash(stage) = sha256(kind, version of the kind, config, outside, seed, {role: hash of the input})

`outside` is what a config reads besides its inputs. Files that it names (`file.py:Name`, workspace/outside.py), and the file of
a kind from outside, count by content, not by folder.
The hash of an input that a stage makes is that stage's hash; the hash of a path is that of its content (of shards: of their
index, which has the checksum of every file; they may be terabytes). So the same work has the same name on every machine, and
any change of config, seed, version or data upstream gives another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromPath, FromStage, Inputs, InputSource, Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.tree import Node
from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import PARTIAL, file_sha256
from ingot.workspace.nearest import nearest, suggestion
from ingot.workspace.outside import digests, without_paths
from ingot.workspace.runs import find_checkpoint, find_stage
from ingot.workspace.stage import DONE

SHARDS_INDEX = "index.json"  # INDEX_FILE of tokens/shards.py, which imports numpy (a test compares the two)


def resolve_inputs(
    stages: Sequence[Declared], problems: Problems, outside: Node | None = None, *, absent: bool = False
) -> dict[str, Inputs]:
    """The inputs of every stage, by name of the stage. `outside` are paths by artifact; with `absent` none need exist."""
    given = _outside(stages, outside, problems, absent=absent)
    resolved: dict[str, Inputs] = {}
    for number, stage in enumerate(stages):
        resolver = _Resolver(stage, stages[:number], stages[number + 1 :], resolved, given, problems, absent=absent)
        resolved[stage.name] = resolver.inputs()
    return resolved


def _outside(
    stages: Sequence[Declared], node: Node | None, problems: Problems, *, absent: bool
) -> dict[str, InputSource]:
    """The recipe's own `inputs`: what no stage makes, by artifact."""
    if node is None or node.content is None:
        return {}
    if not isinstance(node.content, dict):
        problems.add("inputs: expected a mapping of artifacts to paths", place=node.place, fix="write {shards: PATH}")
        return {}
    needed = sorted({artifact for stage in stages for artifact in stage.kind.needs.values()})
    found: dict[str, InputSource] = {}
    for artifact, child in node.content.items():
        if artifact not in needed:
            fix = suggestion(artifact, needed, "what its stages take")
            problems.add(f"inputs.{artifact}: no stage takes {artifact}", place=child.place, fix=fix)
        elif not isinstance(child.content, str) or not child.content or "\0" in child.content:
            problems.add(f"inputs.{artifact}: expected a path", place=child.place)
        else:
            path = _found(f"inputs.{artifact}", artifact, child, problems, absent=absent)
            if path is None:
                continue
            if absent or path.exists():
                source = _from_path(f"inputs.{artifact}", artifact, child.content, path, child.place, problems)
                found |= {artifact: source} if source is not None else {}
            else:
                fix = f"put {artifact} there, or write --set inputs.{artifact}=PATH"
                problems.add(f"inputs.{artifact}: {child.content} does not exist", place=child.place, fix=fix)
    return found


def _from_path(where: str, artifact: str, name: str, path: Path, place: str, problems: Problems) -> InputSource | None:
    """An artifact on disk, or inside a stage folder on disk."""
    if (path / artifact).exists():
        return FromPath(path / artifact, artifact)
    if (path / DONE).exists():
        problems.add(f"{where}: the stage folder {name} holds no {artifact}", place=place)
        return None
    return FromPath(path, artifact)


def _found(where: str, artifact: str, node: Node, problems: Problems, *, absent: bool) -> Path | None:
    """The path that is meant: RUNS/NAME/STAGE is its last finished folder, RUNS/NAME the last one with a checkpoint, and
    ORG/MODEL@REVISION a model of the hub; None if the hub was asked and did not give it, which is reported then."""
    path = Path(str(node.content))
    if artifact != "checkpoint":
        return find_stage(path)
    try:
        return find_checkpoint(path, fetch=not absent)
    except ArtifactError as error:
        problems.add(f"{where}: {error.place}: {error.problem}", place=node.place, fix=error.fix)
        return None


class _Resolver:
    """Fills the roles of one stage."""

    def __init__(
        self,
        stage: Declared,
        earlier: Sequence[Declared],
        later: Sequence[Declared],
        resolved: Mapping[str, Inputs],
        outside: Mapping[str, InputSource],
        problems: Problems,
        *,
        absent: bool,
    ) -> None:
        self.stage, self.earlier, self.later = stage, earlier, later
        self.resolved, self.outside, self.problems, self.absent = resolved, outside, problems, absent

    def inputs(self) -> Inputs:
        written = self.stage.inputs or Node({}, self.stage.place)
        if written.content is not None and not isinstance(written.content, dict):
            problem = f"{self.stage.name}.inputs: expected a mapping of roles to stages or paths"
            self.problems.add(problem, place=written.place, fix="write inputs: {checkpoint: STAGE}")
            return {}
        for role, node in written.entries.items():
            if role not in self.stage.kind.needs:
                fix = suggestion(
                    role, self.stage.kind.needs, f"inputs of a {without_paths(self.stage.kind.kind)} stage"
                )
                self.problems.add(f"unknown input {self.stage.name}.inputs.{role}", place=node.place, fix=fix)
        filled: dict[str, InputSource | Mapping[str, InputSource]] = {}
        for role, artifact in self.stage.kind.needs.items():
            given = written.entries.get(role)
            several = role in self.stage.kind.several and given is not None and isinstance(given.content, dict)
            if role in self.stage.kind.many or several:
                sources = self._many(role, artifact, given)
                if sources:
                    filled[role] = sources
                continue
            source = self._default(role, artifact) if given is None else self._named(role, artifact, given)
            if source is not None:
                filled[role] = source
        return filled

    def _default(self, role: str, artifact: str) -> InputSource | None:
        makers = [stage for stage in self.earlier if artifact in stage.kind.makes]
        optional = role in self.stage.kind.optional
        if role != artifact and optional:
            return None  # which one it is only the recipe can say
        if self.stage.config is None and role != artifact:
            return None  # its options have problems, which are reported already
        if self.stage.config is not None and role in self.stage.config.supplies():
            return None
        if role != artifact:
            names = ", ".join(stage.name for stage in makers) or "none yet"
            self.problems.add(
                f"{self.stage.name}: which {artifact} is the {role}?",
                place=self.stage.place,
                fix=f"write inputs: {{{role}: STAGE}} or a path; earlier stages that make one: {names}",
            )
            return None
        if makers:
            return FromStage(makers[-1].name, artifact)
        if artifact not in self.outside and not optional:
            self._nothing_makes(role, artifact)
        return self.outside.get(artifact)

    def _nothing_makes(self, role: str, artifact: str) -> None:
        afterwards = [stage.name for stage in self.later if artifact in stage.kind.makes]
        problem = f"{self.stage.name} needs {artifact}, which no earlier stage makes"
        fix = f"add a stage that makes {artifact} before it, or write inputs: {{{role}: PATH}}"
        if afterwards:
            fix = f"move {self.stage.name} after {afterwards[0]}, or write inputs: {{{role}: PATH}}"
        self.problems.add(problem, place=self.stage.place, fix=fix)

    def _many(self, role: str, artifact: str, node: Node | None) -> dict[str, InputSource]:
        """Every earlier artifact of the kind, or those that are named."""
        if node is None or node.content is None:
            makers = [stage for stage in self.earlier if artifact in stage.kind.makes]
            if not makers:
                self._nothing_makes(role, artifact)
            return self._by_subject([FromStage(stage.name, artifact) for stage in makers])
        if node.content in ([], {}) and role not in self.stage.kind.optional:
            problem = f"{self.stage.name}.inputs.{role}: none is named"
            self.problems.add(problem, place=node.place, fix="name stages or paths: [STAGE, PATH]")
            return {}
        if isinstance(node.content, dict):
            named = {name: self._named(role, artifact, child) for name, child in node.content.items()}
            return {name: source for name, source in named.items() if source is not None}
        listed: list[InputSource] = []
        for item in node.content if isinstance(node.content, list) else [node]:
            family = [s for s in self.earlier if s.written_as == item.content and s.written_as != s.name]
            if family:  # the name of an expanded stage means all of its stages
                listed += [FromStage(stage.name, artifact) for stage in family if artifact in stage.kind.makes]
                continue
            source = self._named(role, artifact, item)
            listed += [source] if source is not None else []
        return self._by_subject(listed)

    def _by_subject(self, sources: Sequence[InputSource]) -> dict[str, InputSource]:
        """Scores have the name of the stage whose checkpoint was scored; if that is not unique, their own."""
        for name_of in (self._subject, _own_name):
            named = {name_of(source): source for source in sources}
            if len(named) == len(sources):
                return named
        problem = f"{self.stage.name}.inputs: two inputs have the same name"
        self.problems.add(problem, place=self.stage.place, fix="write a mapping of names to stages or paths")
        return {}

    def _subject(self, source: InputSource) -> str:
        looked_at = None
        if isinstance(source, FromStage) and source.artifact == "scores":
            looked_at = self.resolved[source.stage].get("checkpoint")
        return looked_at.stage if isinstance(looked_at, FromStage) else _own_name(source)

    def _named(self, role: str, artifact: str, node: Node) -> InputSource | None:
        """The source that the recipe names: a stage first, else a path."""
        where = f"{self.stage.name}.inputs.{role}"
        if node.content is None and role in self.stage.kind.optional:
            return None
        if not isinstance(node.content, str) or not node.content or "\0" in node.content:
            self.problems.add(f"{where}: expected the name of a stage or a path", place=node.place)
            return None
        name = node.content
        if any(stage.name == name for stage in self.later) or name == self.stage.name:
            when = "itself" if name == self.stage.name else "a later stage"
            self.problems.add(f"{where}: {name} is {when}", place=node.place, fix="name an earlier stage, or a path")
            return None
        maker = next((stage for stage in self.earlier if stage.name == name), None)
        if maker is None:
            return self._path(where, artifact, node, name)
        if artifact not in maker.kind.makes:
            right = [stage.name for stage in self.earlier if artifact in stage.kind.makes]
            made = " and ".join(maker.kind.makes)
            fix = f"stages that make {artifact}: {', '.join(right) or 'none yet'}"
            self.problems.add(f"{where}: {name} makes {made}, not {artifact}", place=node.place, fix=fix)
            return None
        return FromStage(name, artifact)

    def _path(self, where: str, artifact: str, node: Node, name: str) -> InputSource | None:
        """An artifact on disk or on the hub; what may be absent must look like a path."""
        path, place = _found(where, artifact, node, self.problems, absent=self.absent), node.place
        if path is None:
            return None
        if not path.exists() and not (self.absent and "/" in name):
            names = [stage.name for stage in self.earlier]
            right = None if "/" in name else nearest(name, names)
            found = f"earlier stages: {', '.join(names)}" if names else f"give the path of its {artifact}"
            fix = f"did you mean {right}?" if right else found
            self.problems.add(f"{where}: {name} is neither an earlier stage nor an existing path", place=place, fix=fix)
            return None
        return _from_path(where, artifact, name, path, place, self.problems)


def _own_name(source: InputSource) -> str:
    return source.stage if isinstance(source, FromStage) else source.path.name


def hash_stages(recipe: Recipe, table: Table = STAGES) -> dict[str, str]:
    """The hash of every stage, by name. Reads the inputs that are given as paths, and the files that configs name."""
    hashes: dict[str, str] = {}
    for stage in recipe.stages:
        work = stage.config.work()
        hashes[stage.name] = content_hash(
            {
                "kind": without_paths(stage.kind),
                "version": table.find(stage.kind).version,
                "config": without_paths(work),
                "outside": stage.config.outside() | without_paths(digests([stage.kind, work])),
                "seed": stage.seed,
                "inputs": input_hashes(stage.inputs, hashes),
            }
        )
    return hashes


def input_hashes(inputs: Inputs, hashes: Mapping[str, str]) -> dict[str, str | dict[str, str]]:
    """The hash of each input by role, given those of the earlier stages."""

    def one(source: InputSource) -> str:
        if isinstance(source, FromStage):
            return hashes[source.stage]
        index = source.path / SHARDS_INDEX
        return path_hash(index if source.artifact == "shards" and index.is_file() else source.path)

    return {
        role: {name: one(source) for name, source in sources.items()} if isinstance(sources, Mapping) else one(sources)
        for role, sources in inputs.items()
    }


def path_hash(path: Path) -> str:
    """The hash of a file or folder: relative names and bytes. A path that does not exist has no content."""
    if path.is_file():
        return content_hash({"": file_sha256(path)})
    files = sorted(file for file in path.rglob("*") if file.is_file() and PARTIAL not in file.name)
    return content_hash({str(file.relative_to(path).as_posix()): file_sha256(file) for file in files})
