"""RL from a base model that has no chat template, with a plain prompt, stop texts, and exact tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.source import RlSource
from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model

REPEATED = """
from ingot.envs.environment import Environment


class Repeated(Environment):
    "Say the letter that is repeated."

    def draw(self, rng):
        letter = rng.choice("abc")
        return self.ask(f"{letter * 3} {rng.randrange(1000)}", letter, thinking=False)
"""
STOP = "\n\n"


@pytest.fixture(scope="module")
def base(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of plain text without a chat template. It has read letters, a line and any letter, half of the texts with
    an end of text, half with two line breaks; which letter is right it does not know."""
    plain = Tokenizer(tokenizer.backend, None)
    model = tiny_model(plain, std=0.05)
    rng = random.Random(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        texts = []
        for _ in range(32):
            asked = f"{rng.choice('abc') * 3} {rng.randrange(1000)}"
            ending = [plain.end_of_text] if rng.random() < 0.5 else plain.encode(f"{STOP}more")
            texts.append([*plain.encode(f"{asked}\n"), *plain.encode(rng.choice("abc")), *ending])
        width = max(map(len, texts))
        tokens = torch.tensor([text + [0] * (width - len(text)) for text in texts])
        targets = torch.tensor([text[1:] + [-100] * (width - len(text)) for text in texts])
        logits = model.head(model.hidden(tokens, torch.arange(width).expand(tokens.shape), None))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return checkpoint_of(model, tmp_path_factory.mktemp("zero") / "base")


@pytest.fixture
def tasks(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "repeated.py").write_text(REPEATED, encoding="utf-8")
    return {"weights": {f"{tmp_path}/repeated.py:Repeated": 1}}


def config_of(tasks: dict[str, Any], **options: Any) -> RlConfig:
    usual: dict[str, Any] = {"steps": 30, "sequence_length": 48, "prompts_per_step": 8, "group": 8, "max_new_tokens": 6}
    usual |= {"tasks": tasks, "template": "plain", "stop": [STOP], "device": "cpu", "precision": "float32"}
    return RlConfig.model_validate(usual | {"optimizer": {"lr": 8e-3, "weight_decay": 0.0}} | options)


def test_a_base_model_learns_from_a_plain_prompt(
    base: Path, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder]
) -> None:
    folder = make_folder("rl")
    with pytest.raises(ArtifactError, match="no chat template"):
        rl.run(config_of(tasks, template=None), {"checkpoint": base}, folder)
    told = rl.run(config_of(tasks), {"checkpoint": base}, folder)
    assert told["first_reward"] < 0.45 and told["last_reward"] > told["first_reward"] + 0.25, told
    result = load_model(folder.path)
    assert result.tokenizer is not None
    chat, end = ChatFormat(result.tokenizer), result.tokenizer.end_of_text
    assert chat.prompt([Message("user", "bbb 12")]) == result.tokenizer.encode("bbb 12\n"), (
        "the result keeps the prompt"
    )
    assert chat.turn_ends == (end,)


def episodes_of(model: Transformer, tasks: dict[str, Any], **limits: Any) -> list[Any]:
    mix = TaskMix(config_of(tasks).tasks)
    assert model.tokenizer is not None
    asked = mix.generate(3, 24, "train")
    engine = Engine(model, slots=24, length=48)
    return rollout(
        asked,
        engine,
        ChatFormat(model.tokenizer),
        mix.kinds,
        drawing=Drawing(seed=5),
        limits=Limits(6, 48, **limits),
    )


def test_tokens_and_masks_are_exact(
    base: Path, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder]
) -> None:
    """The prompt is the question and a line break; what was sampled, stop texts too, is learnt, and is no part of the answer."""
    config = config_of(tasks, steps=1)
    stage = rl.Rl(config, {"checkpoint": base}, make_folder("rl"))
    tokenizer = stage.model.tokenizer
    assert tokenizer is not None
    endings = set()
    for each in episodes_of(stage.model, tasks, stops=(STOP,)):
        prompt, answer = each.nodes
        assert prompt.tokens == tokenizer.encode(f"{each.task.question}\n") and len(each.nodes) == 2
        text = tokenizer.decode([token for token in answer.tokens if token != tokenizer.end_of_text])
        if answer.tokens[-1] == tokenizer.end_of_text:
            endings.add("token")
            assert STOP not in text and each.answer == text
        elif STOP in text:
            endings.add("text")
            assert STOP not in tokenizer.decode(answer.tokens[:-1]), "sampling ends with the token that completes it"
            assert each.answer == text[: text.index(STOP)]
        else:
            assert len(answer.tokens) == 6 and each.messages[-1].problems
    assert endings == {"token", "text"}
    source = stage.source()
    assert isinstance(source, RlSource)
    for sequence in source.update(0)[0]:
        count = int(sum(sequence.streams["response_mask"]))
        begin = len(sequence.tokens) - count
        assert sequence.streams["response_mask"] == [0.0] * begin + [1.0] * count
        assert tokenizer.decode(sequence.tokens[:begin]).endswith("\n")


class Twice(Environment):
    """Asks again after the first answer."""

    def draw(self, rng: random.Random) -> Any:
        return self.ask(f"{rng.choice('abc') * 3} {rng.randrange(1000)}", "a", thinking=False)

    def reply(self, episode: Episode) -> str:
        return "bbb 1" if episode.turns == 1 else ""


def test_a_turn_that_a_text_has_ended_gets_its_token_before_the_next(
    base: Path, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder]
) -> None:
    model = rl.Rl(config_of(tasks, steps=1), {"checkpoint": base}, make_folder("rl")).model
    assert model.tokenizer is not None
    asked, chat, end = Twice().generate(1, 24, "train"), ChatFormat(model.tokenizer), model.tokenizer.end_of_text
    limits = Limits(6, 48, stops=(STOP,))
    engine = Engine(model, slots=24, length=48)
    first = set()
    for each in rollout(asked, engine, chat, {"twice": Twice()}, drawing=Drawing(seed=1), limits=limits):
        if len(each.nodes) > 2:
            answer, given = each.nodes[1], each.nodes[2]
            ended = answer.tokens[-1] == end
            first.add(ended)
            text = "\nbbb 1\n" if ended else f"{model.tokenizer.piece(end)}\nbbb 1\n"
            assert model.tokenizer.decode(given.tokens) == text and not given.sampled
    assert first == {True, False}


def test_without_a_stop_text_such_answers_are_cut(
    base: Path, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder]
) -> None:
    model = rl.Rl(config_of(tasks, steps=1), {"checkpoint": base}, make_folder("rl")).model
    with_stop, without = (
        sum(bool(each.messages[-1].problems) for each in episodes_of(model, tasks, stops=stops))
        for stops in ((STOP,), ())
    )
    assert without > with_stop + 5


def test_a_template_of_ones_own(
    base: Path, tasks: dict[str, Any], make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """As Jinja, or as a file of it; the model's own end of a text stands for the option `end`."""
    jinja = (
        '{%- set end = end | default("") %}\n'
        '{%- for message in messages %}{{ "Q: " ~ message.content if message.role == "user" else message.content ~ end }}'
        '{{ "\\nA:" if message.role == "user" else "" }}{%- endfor %}'
    )
    (tmp_path / "own.jinja").write_text(jinja, encoding="utf-8")
    for number, template in enumerate((jinja, str(tmp_path / "own.jinja"))):
        config = config_of(tasks, template=template)
        model = rl.Rl(config, {"checkpoint": base}, make_folder(f"rl{number}")).model
        assert model.tokenizer is not None
        chat = ChatFormat(model.tokenizer)
        assert model.tokenizer.decode(chat.prompt([Message("user", "aaa 1")])) == "Q: aaa 1\nA:"
        assert chat.turn_end == model.tokenizer.end_of_text
        assert (template in config.outside()) == (number == 1)
