"""The command line, with toy stages put into the table: what it prints, and how it ends."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ingot
from ingot.cli import main
from ingot.cli.stop import resume_command
from ingot.recipe.stages import STAGES

TOYS = Path(__file__).parent / "recipe"
RECIPE = """
name: small
stages:
  make: {text: a}
  train: {steps: 4}
  score: {after: each}
  judge: {claims: [better]}
"""
DRIVER = """
import sys
import toy
from ingot.recipe.stages import STAGES
STAGES.update(toy.TABLE)
from ingot.cli import main
sys.argv[0] = "ingot"
main()
"""
Ingot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy stages, in the real table; a recipe of them in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.syspath_prepend(TOYS)
    module = importlib.import_module("toy")
    module.CALLS.clear()
    for kind, entry in module.TABLE.items():
        monkeypatch.setitem(STAGES, kind, entry)
    Path("recipe.yaml").write_text(RECIPE)
    return module


@pytest.fixture
def run(toy: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ingot:
    """`ingot ARGUMENTS`: exit code, output, errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ingot", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def test_run_ends_with_a_table_the_report_and_what_to_do_next(run: Ingot, toy: ModuleType) -> None:
    code, out, err = run("run", "recipe.yaml")
    assert (code, err) == (0, "")
    assert toy.CALLS == ["make@0", "train@0", "score-train", "verdict"]
    table = [line.split() for line in out.split("\n") if " done " in line]
    assert [row[:2] for row in table[-4:]] == [
        ["make", "done"],
        ["train", "done"],
        ["score-train", "done"],
        ["judge", "done"],
    ]
    report = re.search(r"^report: (\S+)$", out, re.MULTILINE)
    assert report is not None
    assert Path(report[1]).read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    chat = re.search(r"^  ingot chat (\S+)$", out, re.MULTILINE)
    assert chat is not None
    assert (Path(chat[1]) / "checkpoint").exists()
    assert "  ingot report runs/small --open" in out
    code, out, _ = run("run", "recipe.yaml", "--set", "judge.claims=[a, b]")
    assert (code, toy.CALLS[4:]) == (0, ["verdict"])
    assert "runs/small also holds 1 folder (" in out


def test_run_json(run: Ingot) -> None:
    code, out, _ = run("run", "recipe.yaml", "--to", "train", "--json")
    result = json.loads(out)
    assert code == 0
    assert [stage["status"] for stage in result["stages"]] == ["done", "done", "pending", "pending"]
    assert result["stages"][1]["bytes"] > 0
    assert result["checkpoint"].startswith("runs/small/train-")
    assert Path(result["report"]).exists()


def test_dry_run(run: Ingot, toy: ModuleType) -> None:
    code, out, _ = run("run", "recipe.yaml", "--dry-run")
    assert (code, out.count("to run"), toy.CALLS, Path("runs").exists()) == (0, 4, [], False)


def test_errors_are_messages_with_exit_code_2(run: Ingot) -> None:
    code, out, err = run("run", "recipe.yaml", "--set", "train.stpes=3")
    assert (code, out) == (2, "")
    assert err == "error: --set train.stpes=3: unknown key train.stpes\n  fix: did you mean steps?\n"
    code, _, err = run("run", "recipe.yaml", "--set", "train.fail_at=2")
    assert code == 2
    assert err.startswith("to look at the run so far: ingot report runs/small\nerror: runs/small/train-")
    assert err.endswith(": the toy failed as told\n")
    assert "Traceback" not in err
    assert run("report", "nowhere")[::2] == (
        2,
        "error: there is no run nowhere\n  fix: give a run folder, such as runs/NAME\n",
    )


def test_a_full_disk_is_a_message(run: Ingot, toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def write(path: Path, values: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(toy, "write_json", write)

    fail(errno.ENOSPC)
    code, _, err = run("run", "recipe.yaml")
    assert code == 2
    assert err.startswith("error: runs/small: the disk is full: [Errno 28] No space left on device\n  fix: make room")
    fail(errno.ESTALE)
    monkeypatch.setattr(sys, "argv", ["ingot", "run", "recipe.yaml"])
    with pytest.raises(OSError, match="Stale file handle"):  # not explained: a watchdog tries again
        main()


def test_plan(run: Ingot) -> None:
    code, out, _ = run("plan", "recipe.yaml")
    assert code == 0
    assert re.search(r"^score-train +train +to do +[0-9a-f]{6}", out, re.MULTILINE)
    assert out.endswith("results: runs/small\n")
    code, out, _ = run("plan", "recipe.yaml", "--json", "--set", "seed=5")
    assert json.loads(out)["seed"] == 5
    assert not Path("runs").exists()


def test_doctor(run: Ingot) -> None:
    code, out, _ = run("doctor", "recipe.yaml", "--json")
    checks = json.loads(out)
    assert code == 0
    assert {"python", "torch", "recipe"} <= {check["name"] for check in checks}
    Path("bad.yaml").write_text("stages: {mkae: }\n")
    code, out, _ = run("doctor", "bad.yaml")
    assert code == 1
    assert re.search(r"^fail  recipe +bad.yaml:1: mkae: there is no stage kind mkae$", out, re.MULTILINE)


def test_report(run: Ingot) -> None:
    run("run", "recipe.yaml", "--json")
    code, out, _ = run("report", "small", "--out", "page.html", "--json")
    assert (code, json.loads(out)) == (0, {"report": "page.html"})
    assert Path("page.html").stat().st_size > 1000


def test_one_kind_of_stage(run: Ingot) -> None:
    """A real stage kind, from a plain file."""
    Path("text.yaml").write_text("vocabulary_size: 300\n")
    code, _, err = run("tokenizer", "text.yaml")
    assert code == 2
    assert err.startswith("error: text.yaml:1: tokenizer needs documents, which no earlier stage makes\n")
    Path("given").mkdir()
    code, out, err = run("tokenizer", "text.yaml", "--input", "documents=given", "--dry-run", "--json", "--seed", "3")
    assert (code, err) == (0, "")
    assert [stage["name"] for stage in json.loads(out)["stages"]] == ["tokenizer"]
    for spelt in (("train", "text.yaml", "--dry-run", "--json"), ("--json", "--dry-run", "text.yaml")):
        code, again, err = run("tokenizer", *spelt, "--input", "documents=given", "--seed", "3")
        assert code == 0 and again == out, err
    code, _, err = run("tokenizer", "text.yaml", "--input", "documents")
    assert err == "error: --input documents: an input needs a role and a path\n  fix: write --input ROLE=PATH\n"


def test_every_kind_has_a_command(run: Ingot) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for command in ("run", "plan", "report", "chat", "ui", "doctor", "curate", "pretrain", "sft", "rl", "eval"):
        assert re.search(rf"^\W*{command}\W", out, re.MULTILINE), command
    assert run("--version")[:2] == (0, f"ingot {ingot.__version__}\n")


def test_chat_passes_its_options_on(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, Any, dict[str, Any]]] = []
    monkeypatch.setattr("ingot.inference.model_speaker.load_speaker", lambda path: path)
    monkeypatch.setattr("ingot.inference.chat.chat", lambda *given, **options: calls.append((*given, options)))
    assert run("chat", "model", "--prompt", "2+2?", "--no-think", "--temperature", "0", "--seed", "7")[0] == 0
    ((path, sampling, options),) = calls
    assert options.pop("tools")["calculator"].run({"expression": "12*34"}) == "408"
    assert (path, options) == (Path("model"), {"prompt": "2+2?", "system": "", "thinking": False, "ask": True})
    assert (sampling.temperature, sampling.seed, sampling.max_new_tokens) == (0.0, 7, 1024)
    assert run("chat", "model", "--tools", "none", "--yes")[0] == 0
    assert calls[1][2]["tools"] == {} and calls[1][2]["ask"] is False


@pytest.mark.parametrize("command", ["chat", "ui"])
def test_a_model_or_a_server_and_not_both(run: Ingot, command: str) -> None:
    assert run(command)[2] == (
        "error: neither a checkpoint nor a server\n  fix: give one of them: CKPT, or --server URL\n"
    )
    assert "both a checkpoint and a server" in run(command, "model", "--server", "http://127.0.0.1:1")[2]
    code, _, said = run(command, "--server", "http://127.0.0.1:1")
    assert code == 2 and "no answer: " in said and "ingot serve" in said
    assert "--api-key" in run("ui", "model", "--host", "0.0.0.0")[2]


def test_resume_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["/usr/bin/ingot", "run", "a b.yaml", "--from", "sft", "--set", "x=1", "--from=sft"]
    )
    assert resume_command() == "ingot run 'a b.yaml' --set x=1"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_stopped_run_says_how_to_go_on(toy: ModuleType, number: signal.Signals, code: int) -> None:
    def start(*arguments: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(TOYS), str(Path(ingot.__file__).parents[1])])
        command = [sys.executable, "-c", DRIVER, "run", "recipe.yaml", *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
        )

    Path("recipe.yaml").write_text(RECIPE.replace("steps: 4", "steps: 60, pause: 0.02"))
    process = start()
    deadline = time.monotonic() + 20
    while not list(Path("runs").glob("small/train-*/metrics.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "[make] done in" in out  # plain lines, as this is no terminal
    lines = err.strip().split("\n")
    assert re.fullmatch(r"stopped in stage train; its work is saved in runs/small/train-\w+", lines[0])
    assert lines[1:] == ["to go on: ingot run recipe.yaml"]
    process = start("--json")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [stage["status"] for stage in json.loads(out)["stages"]] == ["reused", "done", "done", "done"]


def test_the_same_from_python(toy: ModuleType) -> None:
    planned = ingot.plan("recipe.yaml", set={"train.steps": 2})
    result = ingot.run("recipe.yaml", set={"train.steps": 2}, report=False)
    assert [stage.hash for stage in planned.stages] == [stage.folder.name.split("-")[-1] for stage in result.stages]
    assert result.stages[1].summary["steps"] == 2
    assert result.report is None
    assert [stage.status for stage in ingot.run("recipe.yaml", set={"train.steps": 2}, dry_run=True).stages] == [
        "reused"
    ] * 4
