"""Entries of kinds in a recipe: built-in ones by name, others from outside, and the same errors for both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from ingot.recipe.problems import Problems
from ingot.recipe.tree import parse_yaml
from ingot.recipe.validate import validate
from ingot.workspace.config import Config
from ingot.workspace.kinds import Kind, KindName, Kinds

MINE = '''
from pydantic import Field
from tests.recipe.test_kinds import Shape

class Square(Shape):
    """A square."""
    side: int = Field(gt=0, description="how long")

class Other:
    pass
'''


class Shape(Kind):
    """A family of kinds; its package is one whose names do not change."""

    key: ClassVar[str] = "shape"
    package: ClassVar[str] = "json"
    shape: str = Field("", description="which")
    colour: str = Field("red", description="what it looks like")


SHAPES = Kinds(Shape, "shape")


class Drawing(Config):
    """Has entries in every way that a config may."""

    shapes: tuple[Annotated[Shape, SHAPES], ...] = Field((), description="several")
    frame: Annotated[Shape, SHAPES] | None = Field(None, description="one or none")
    weights: dict[Annotated[str, KindName(SHAPES)], float] = Field({}, description="by name")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return f"{tmp_path}/mine.py:Square"


def read(text: str) -> tuple[Config | None, list[str]]:
    problems = Problems()
    node = parse_yaml(text, "r.yaml", problems)
    config = validate(Drawing, node, "draw", problems)
    return config, [str(problem) for problem in problems.found]


def test_entries_from_outside_are_typed_and_written_whole(spec: str) -> None:
    config, problems = read(f"shapes: [{{shape: '{spec}', side: 3}}]\nframe: {{shape: '{spec}', side: 4}}\n")
    assert not problems and isinstance(config, Drawing)
    square = config.shapes[0]
    assert square.model_dump() == {"shape": spec, "colour": "red", "side": 3}
    assert config.model_dump(mode="json")["frame"] == {"shape": spec, "colour": "red", "side": 4}
    assert Drawing.model_validate(config.model_dump()) == config
    assert type(square).model_validate({"side": 3}) == square  # made in Python, it knows its own name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "shapes:\n  - {shape: SPEC, sied: 3}",
            [
                "r.yaml:2: draw.shapes.0.side is missing\n  fix: give side: how long",
                "r.yaml:2: unknown key draw.shapes.0.sied\n  fix: did you mean side?",
            ],
        ),
        (
            "shapes:\n  - {shape: SPEC, side: '3'}",
            ["r.yaml:2: draw.shapes.0.side: expected a whole number, given the text '3'"],
        ),
        ("frame:\n  shape: SPEC\n  side: 0", ["r.yaml:3: draw.frame.side: input should be greater than 0, given the number 0"]),
        ("frame: 3", ["r.yaml:1: draw.frame: expected a mapping, given the number 3"]),
        (
            "shapes:\n  - {side: 3}",
            ["r.yaml:2: draw.shapes.0.shape is missing\n  fix: give shape: one of decoder, encoder, scanner, "
             "tool, or file.py:Name"],
        ),
        (
            "shapes:\n  - shape: encodr",
            ["r.yaml:2: draw.shapes.0.shape: there is no shape encodr\n  fix: did you mean encoder?"],
        ),
        ("weights: {encodr: 1}", ["r.yaml:1: draw.weights.encodr: there is no shape encodr\n  fix: did you mean encoder?"]),
        (
            "shapes:\n  - shape: FOLDER/mine.py:Other",
            ["r.yaml:2: draw.shapes.0.shape: FOLDER/mine.py:Other does not derive from Shape, the base class of every shape\n"
             "  fix: write class Other(Shape), with Shape from tests.recipe.test_kinds"],
        ),
        (
            "shapes: [FOLDER/mine.py:Sqare]",
            ["r.yaml:1: draw.shapes.0: FOLDER/mine.py has no Sqare\n  fix: did you mean Square?"],
        ),
    ],
)  # fmt: skip
def test_errors_are_those_of_built_in_kinds(spec: str, text: str, said: list[str]) -> None:
    folder = spec.rpartition("/")[0]
    config, problems = read(text.replace("SPEC", spec).replace("FOLDER", folder))
    assert config is None
    assert problems == [one.replace("FOLDER", folder) for one in said]


class Several(Config):
    """At least one entry."""

    shapes: tuple[Annotated[Shape, SHAPES], ...] = Field(min_length=1, description="several")


def test_a_wrong_entry_does_not_make_a_list_too_short() -> None:
    problems = Problems()
    assert validate(Several, parse_yaml("shapes: [encodr]", "r.yaml", problems), "draw", problems) is None
    assert [str(problem) for problem in problems.found] == [
        "r.yaml:1: draw.shapes.0: there is no shape encodr\n  fix: did you mean encoder?"
    ]
