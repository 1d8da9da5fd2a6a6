"""A teacher on a server: the same numbers as the model in this process, servers that fail, and one in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.planner.cost import stage_costs
from ingot.post.data.conversations.sequences import task_conversations
from ingot.post.distill import stage as distill
from ingot.post.distill.config import DistillConfig, TeacherEndpointConfig
from ingot.post.distill.remote_teacher import RemoteTeacher
from ingot.post.distill.stage import as_given
from ingot.post.distill.teacher import LocalTeacher
from ingot.post.policy import chat_format
from ingot.post.processes import ALONE
from ingot.recipe.load import load_recipe
from ingot.tokens.batch import TokenSequence
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import IngotError, RecipeError
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, distill_options, nudged, tiny_model
from tests.serve.openai.harness import Running, serving

MakeFolder = Callable[[str], StageFolder]
PATIENCE = 120.0
SHORT: dict[str, Any] = {
    **{"steps": 2, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 4, "group": 2, "max_new_tokens": 6},
    **{"optimizer": {"lr": 3e-3}, "precision": "float32", "device": "cpu"},
}


def options(**changes: Any) -> DistillConfig:
    return distill_options(SHORT | changes)


def address(url: str, **more: Any) -> dict[str, Any]:
    return {"url": f"{url}/v1", "model": "speaker", "attempts": 2, "timeout_seconds": 30, "concurrency": 3, **more}


@pytest.fixture(scope="module")
def teacher(tokenizer: Tokenizer) -> Transformer:
    return tiny_model(tokenizer, seed=2, std=0.1)


@pytest.fixture(scope="module")
def server(teacher: Transformer) -> Iterator[Running]:
    with serving(Engine(teacher, slots=4)) as running:
        yield running


@pytest.fixture
def remote(server: Running, tokenizer: Tokenizer) -> RemoteTeacher:
    return RemoteTeacher("far", TeacherEndpointConfig(**address(server.url)), tokenizer, None)


@pytest.fixture
def texts(teacher: Transformer) -> list[TokenSequence]:
    return [as_given(each) for each in task_conversations(SUMS, chat_format(teacher), 7, seed=1)]


def test_its_numbers_are_those_of_the_model(
    remote: RemoteTeacher, teacher: Transformer, texts: list[TokenSequence]
) -> None:
    near = LocalTeacher("near", teacher, None)
    remote.check()
    one, two = (each.logprobs(texts, 64, 1.0, ALONE) for each in (remote, near))
    for row, expected in zip(one, two, strict=True):
        assert row == pytest.approx(expected, abs=1e-5)
    found, wanted = (each.with_likeliest(texts, 40, 64, 1.0, ALONE) for each in (remote, near))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.tokens == theirs.tokens
        torch.testing.assert_close(
            mine.vectors["teacher_logprobs"], theirs.vectors["teacher_logprobs"], rtol=0, atol=1e-5
        )
        same = mine.vectors["teacher_tokens"] == theirs.vectors["teacher_tokens"]
        assert same.float().mean() > 0.98  # ties may be in another order


@pytest.mark.parametrize("algorithm", ["reverse_kl", {"algorithm": "top_k", "k": 20}])
def test_a_stage_learns_from_it_what_it_learns_from_the_model(
    algorithm: Any, server: Running, teacher: Transformer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    student = checkpoint_of(nudged(teacher, 0.05, seed=3), tmp_path / "student")
    near, far = make_folder("near"), make_folder("far")
    inputs = {"checkpoint": student, "teacher": checkpoint_of(teacher, tmp_path / "teacher")}
    distill.run(options(algorithm=algorithm), inputs, near)
    distill.run(options(algorithm=algorithm, endpoints={"far": address(server.url)}), {"checkpoint": student}, far)
    rows, others = ([row["teacher_divergence"] for row in folder.metrics.read()] for folder in (near, far))
    assert rows == pytest.approx(others, rel=1e-4) and rows[0] > 0.01


def test_a_server_with_another_tokenizer(
    server: Running, teacher: Transformer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """Its tokenizer is given as a folder: the same grades as with the model in this process."""
    assert teacher.tokenizer is not None
    teacher.tokenizer.save(tmp_path / "tokenizer")
    other = train_tokenizer(["10 11 the numbers 3 + 4 please"] * 40, TokenizerConfig(vocabulary_size=290))
    student = checkpoint_of(tiny_model(other), tmp_path / "student")
    near, far = make_folder("near"), make_folder("far")
    distill.run(options(), {"checkpoint": student, "teacher": checkpoint_of(teacher, tmp_path / "teacher")}, near)
    endpoint = address(server.url, tokenizer=str(tmp_path / "tokenizer"))
    distill.run(options(endpoints={"far": endpoint}), {"checkpoint": student}, far)
    rows, others = ([row["teacher_divergence"] for row in folder.metrics.read()] for folder in (near, far))
    assert rows == pytest.approx(others, rel=1e-4)
    with pytest.raises(
        RecipeError, match=r"token \d+ is .* here and .* there"
    ):  # without it the ids mean something else
        distill.run(options(endpoints={"far": address(server.url)}), {"checkpoint": student}, make_folder("wrong"))


def test_what_it_said_of_given_texts_is_saved(
    server: Running, teacher: Transformer, make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": str(n + 1)}]}
        for n in range(5)
    ]
    write_jsonl(tmp_path / "sums.jsonl", rows)
    config = options(
        algorithm={"algorithm": "top_k", "k": 9},
        on_policy=0,
        files=(str(tmp_path / "sums.jsonl"),),
        endpoints={"far": address(server.url)},
    )
    inputs, folder = {"checkpoint": checkpoint_of(teacher, tmp_path / "student")}, make_folder("distill")
    stage = distill.Distill(config, inputs, folder)
    first = stage.source().given
    assert not stage.teachers
    monkeypatch.setattr(RemoteTeacher, "_likeliest", None)
    again = distill.Distill(config, inputs, folder).source().given
    assert len(first) == 10  # in both modes of thinking
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one.vectors["teacher_logprobs"], two.vectors["teacher_logprobs"])


class Unhelpful(BaseHTTPRequestHandler):
    """Completes every text, and scores none."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"choices": [{"text": "", "logprobs": null}]}')

    def log_message(self, *_: Any) -> None:
        pass


def test_servers_that_cannot_teach_are_errors(tokenizer: Tokenizer, texts: list[TokenSequence]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unhelpful) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http.server_address[1]}"
        mute = RemoteTeacher("mute", TeacherEndpointConfig(**address(url)), tokenizer, None)
        with pytest.raises(IngotError, match=r"0 log-probabilities for \d+ tokens"):
            mute.check()
        with pytest.raises(IngotError, match=r"prompt_logprobs of 0 tokens for \d+"):
            mute.with_likeliest(texts, 3, 64, 1.0, ALONE)
        http.shutdown()
    gone = RemoteTeacher("gone", TeacherEndpointConfig(**address(url, attempts=1)), tokenizer, None)
    with pytest.raises(IngotError, match="the teacher gone gave no answer in 1 tries"):
        gone.logprobs(texts, 64, 1.0, ALONE)


def test_options_that_no_server_can_follow_are_refused() -> None:
    there = {"far": address("http://127.0.0.1:1")}
    with pytest.raises(ValueError, match="gkd compares whole distributions, which no server gives"):
        options(algorithm="gkd", endpoints=there)
    with pytest.raises(ValueError, match="gold compares whole distributions"):
        options(algorithm="gold", endpoints=there)
    with pytest.raises(ValueError, match="probabilities at temperature 1"):
        options(algorithm="top_k", temperature=0.9, endpoints=there)
    with pytest.raises(ValueError, match="with another tokenizer use reverse_kl"):
        options(algorithm="top_k", endpoints={"far": address("http://127.0.0.1:1", tokenizer="folder")})
    with pytest.raises(RecipeError, match="there is no teacher"):
        options().check_teachers([])
    with pytest.raises(RecipeError, match="two teachers have one name: far, far"):
        options().check_teachers(["far", "far"])


def test_a_recipe_needs_no_teacher_checkpoint_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the plan count one."""
    recipe = tmp_path / "recipe.yaml"
    stage = "stages:\n  distill:\n    {steps: 1, sequence_length: 64, inputs: {checkpoint: given}"
    (tmp_path / "given").mkdir()
    monkeypatch.chdir(tmp_path)
    recipe.write_text(f"{stage}, endpoints: {{far: {{url: http://127.0.0.1:1/v1, model: m}}}}}}\n")
    loaded = load_recipe(recipe)
    assert "teacher" not in loaded.stage("distill").inputs and stage_costs(loaded)["distill"].steps == 1
    recipe.write_text(f"{stage}}}\n")
    with pytest.raises(RecipeError, match="which checkpoint is the teacher"):
        load_recipe(recipe)
    recipe.write_text(f"{stage}, endpoints: {{far: {{url: http://127.0.0.1:1/v1}}}}}}\n")
    with pytest.raises(RecipeError, match=r"endpoints.far.model") as caught:
        load_recipe(recipe)
    assert "teacher?" not in str(caught.value)


@pytest.mark.slow
def test_a_server_in_a_process_of_its_own(teacher: Transformer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """`ingot serve TEACHER`, and a student that learns from it, in two processes."""
    command = [sys.executable, "-m", "ingot", "serve", str(checkpoint_of(teacher, tmp_path / "teacher")), "--port", "0"]
    command += ["--device", "cpu", "--precision", "float32"]  # by default it serves in bfloat16 where the CPU has it
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if "http://" in line)
            url = next(word for word in line.split() if word.startswith("http://")).rstrip("/,.")
            student = checkpoint_of(nudged(teacher, 0.05, seed=3), tmp_path / "student")
            endpoint = address(url.removesuffix("/v1"), model="teacher")
            near, far = make_folder("near"), make_folder("far")
            distill.run(options(endpoints={"far": endpoint}), {"checkpoint": student}, far)
            distill.run(options(), {"checkpoint": student, "teacher": tmp_path / "teacher"}, near)
            rows, others = ([row["teacher_divergence"] for row in each.metrics.read()] for each in (near, far))
            assert rows == pytest.approx(others, rel=1e-4)
        finally:
            process.terminate()
            process.wait(PATIENCE)
