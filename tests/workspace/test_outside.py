"""`file.py:Name` and `package.module:Name`: loading, pickling into other processes, digests, and errors that say what to do."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.workspace.errors import RecipeError
from ingot.workspace.outside import anchor, digests, load_outside, outside_sha256, spec_of, without_paths

SOURCE = "import json\n\nclass Square:\n    power = 2\n\ndef lookup(key):\n    return json.dumps(key)\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def message(spec: str, folder: Path) -> str:
    with pytest.raises(RecipeError) as caught:
        load_outside(spec, folder, place="recipe.yaml:7")
    return str(caught.value)


def test_a_file_is_loaded_once_and_anew_when_it_has_changed(file: Path) -> None:
    first = load_outside("mine.py:Square", file.parent)
    assert first is load_outside(f"{file}:Square")
    assert first.power == 2
    file.write_text(SOURCE.replace("= 2", "= 3"), encoding="utf-8")  # within the same second, of the same size
    assert load_outside("mine.py:Square", file.parent).power == 3


def test_two_files_of_one_name_are_two_modules(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "mine.py"
    other.parent.mkdir()
    other.write_text("class Square:\n    power = 9\n", encoding="utf-8")
    assert [load_outside(f"{path}:Square").power for path in (file, other)] == [2, 9]


def test_what_a_file_defines_goes_into_another_process(file: Path) -> None:
    square = load_outside(f"{file}:Square")
    data = pickle.dumps((square, square(), load_outside(f"{file}:lookup")))
    code = "import pickle, sys; a, b, c = pickle.load(sys.stdin.buffer); print(a.power, type(b) is a, c('x'))"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True, timeout=60)
    assert done.stdout.split() == [b"2", b"True", b'"x"']


def test_installed_modules_work_too() -> None:
    assert load_outside("json:dumps") is __import__("json").dumps
    assert len(outside_sha256("json.decoder:JSONDecoder")) == 64


def test_a_class_knows_its_spec(file: Path) -> None:
    assert spec_of(load_outside("mine.py:Square", file.parent)) == f"{file}:Square"
    assert spec_of(RecipeError) == "ingot.workspace.errors:RecipeError"


def test_errors_say_what_is_wrong_and_what_to_do(file: Path, tmp_path: Path) -> None:
    assert message("none.py:A", tmp_path) == (
        f"recipe.yaml:7: there is no file {tmp_path}/none.py\n"
        "  fix: write the path from the folder of the recipe that names it"
    )
    missing = message("mine.py:Sqare", tmp_path)
    assert missing == f"recipe.yaml:7: {file} has no Sqare\n  fix: did you mean Square?"
    assert message("mine.py:Zzz", tmp_path).endswith("fix: it has: Square, lookup")
    assert "fix: write file.py:Name or package.module:Name" in message("mine.py", tmp_path)
    file.write_text("x = 1\n\ny = nmae\n", encoding="utf-8")
    broken = message("mine.py:Square", tmp_path)
    assert f"{file}:3 cannot be imported: NameError: name 'nmae' is not defined" in broken
    assert broken.endswith("fix: look at line 3: y = nmae")
    file.write_text("def f(:\n", encoding="utf-8")
    assert f"{file}:1 cannot be imported: SyntaxError" in message("mine.py:Square", tmp_path)
    assert "no_such_module cannot be imported: ModuleNotFoundError" in message("no_such_module:A", tmp_path)


def test_a_broken_file_can_be_repaired(file: Path) -> None:
    file.write_text("import nothing_like_this\n", encoding="utf-8")
    assert "ModuleNotFoundError" in message("mine.py:Square", file.parent)
    file.write_text(SOURCE, encoding="utf-8")
    assert load_outside("mine.py:Square", file.parent).power == 2


def test_digests_are_of_content_wherever_a_spec_is(file: Path) -> None:
    spec = f"{file}:Square"
    value = {"a": [{"kind": spec}, "note:this", "12:30"], spec: 1, "b": ("json:dumps", f"{file.parent}/gone.py:A")}
    found = digests(value)
    assert set(found) == {spec, "json:dumps"}
    assert found[spec] == outside_sha256(spec)
    file.write_text(SOURCE + "\n", encoding="utf-8")
    assert digests(value)[spec] != found[spec]


def test_paths_become_absolute_and_leave_no_folder_in_a_hash(file: Path) -> None:
    assert anchor("mine.py:Square", file.parent) == f"{file}:Square"
    assert anchor("json:dumps", file.parent) == "json:dumps"
    assert anchor("look at mine.py:Square", file.parent) == "look at mine.py:Square"
    assert without_paths({f"{file}:Square": [f"{file}:Square", 1]}) == {"mine.py:Square": ["mine.py:Square", 1]}
