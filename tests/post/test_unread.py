"""Options of post-training stages that nothing would read beside other options or inputs are refused when a recipe is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.post.prefer_config import PreferConfig
from ingot.post.sft_config import SftConfig
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError

SFT, PREFER = "steps: 4, sequence_length: 64", "steps: 4, sequence_length: 64, pairs: {%s}"
SFT_FILE, PREFER_FILE = SFT + ", files: [rows.jsonl]", PREFER % "files: [rows.jsonl]"
OWN, TWO = PREFER % "", PREFER % "strong: {model: a}, weak: {model: b}"
RL = "steps: 4, sequence_length: 256"
DISTILL = RL + ", algorithm: gkd, inputs: {teacher: a/b}, files: [rows.jsonl], on_policy: %g"
REWARD = SFT_FILE
KTO = ", algorithm: kto"
ANSWERS = "the answers are those of `pairs.files`"

REFUSED = [
    ("sft", SFT, "filters: [repetition]", "filters: generated conversations are not filtered"),
    ("sft", SFT, "file_share: 0.3", "file_share: generated conversations are not filtered, cut or repeated"),
    ("sft", SFT, "too_long: cut", "too_long: generated conversations"),
    ("sft", SFT, "bad_rows: leave_out", "bad_rows: generated conversations"),
    ("sft", SFT, "template_options: {assistant: me}", "template_options: there is no `template`; leave it out"),
    ("sft", SFT, "batch_tokens: 100, batch_conversations: 8", "batch_conversations: `batch_tokens` says how large"),
    ("sft", SFT_FILE, "task_conversations: 100", "task_conversations: beside files `tasks` is null unless it is written"),
    ("sft", SFT_FILE, "tasks: null, follow_ups: 0.5", "follow_ups: `tasks` is null; leave it out"),
    ("sft", SFT_FILE, "file_share: 0.5", "file_share: beside files `tasks` is null"),
    ("prefer", PREFER_FILE, "tasks: {weights: {no_think: 1}}, samples: 4", f"tasks, samples: {ANSWERS}; leave them"),
    ("prefer", PREFER_FILE, "tools: [calculator]", f"tools: {ANSWERS}"),
    ("prefer", PREFER_FILE, "prompts: 9", f"prompts: {ANSWERS}"),
    ("prefer", PREFER_FILE, "temperature: 0.7", f"temperature: {ANSWERS}"),
    ("prefer", PREFER_FILE, "max_new_tokens: 9", f"max_new_tokens: {ANSWERS}"),
    ("prefer", PREFER_FILE, "pairs_per_task: 1", f"pairs_per_task: {ANSWERS}"),
    ("prefer", PREFER % "files: [rows.jsonl], choose: best_worst", "", f"pairs.choose: {ANSWERS}"),
    ("prefer", PREFER_FILE, f"length_gap: 9{KTO}", "length_gap: kto takes each answer by itself"),
    ("rl", RL, "reward_model_weight: 0.5", "reward_model_weight: there is no reward_model in inputs"),
    ("rl", RL, "ptx: {weight: 1, conversations: 2, files: [a.jsonl]}", "tasks: ptx.files are conversations of one's own"),
    ("distill", DISTILL % 0, "tasks: {weights: {no_think: 1}}, stop: [a]", "tasks, stop: with on_policy: 0 nothing is sampled"),
    ("distill", DISTILL % 0, "max_new_tokens: 9, slots: 2", "max_new_tokens, slots: with on_policy: 0"),
    ("distill", DISTILL % 0, "sampling_precision: float32", "sampling_precision: with on_policy: 0"),
    ("distill", DISTILL % 0, "record_every: 2, record_groups: 1", "record_every, record_groups: with on_policy: 0"),
    ("distill", DISTILL % 0, "episode_seconds: 9, retries: 1", "episode_seconds, retries: with on_policy: 0"),
    ("distill", DISTILL % 0.5, "retries: 1", "tasks: there are conversations of one's own: say on which tasks"),
    ("reward", REWARD, "checkpoints: {keep_best: true}", "checkpoints.keep_best: only pre-training validates between steps"),
    ("prefer", OWN, f"length_gap: 9{KTO}", "length_gap: kto takes each answer by itself"),
    ("prefer", OWN, f"pairs_per_task: 1{KTO}", "pairs_per_task: kto takes each answer by itself"),
    ("prefer", PREFER % "choose: best_worst", KTO[2:], "pairs.choose: kto takes each answer by itself"),
    ("prefer", PREFER % "too_long: leave_out", "", "pairs.too_long: there are no `pairs.files`"),
    ("prefer", TWO, "samples: 4", "samples: each of the two models answers a prompt once"),
    ("prefer", TWO, "inputs: {strong: a/b}, samples: 4", "samples: each of the two models answers a prompt once"),
    ("prefer", OWN, "inputs: {strong: a/b, weak: a/b}, pairs_per_task: 4", "pairs_per_task: each of the two models"),
    (
        "prefer",
        PREFER % "strong: {model: a}, weak: {model: b}, prompt_files: [a.jsonl]",
        "prompts: 4",
        "prompts: the prompts are those of `pairs.prompt_files`",
    ),
]  # fmt: skip


def read(folder: Path, kind: str, *options: str) -> object:
    """The options of the one stage of a recipe."""
    path = folder / "recipe.yaml"
    path.write_text(f"inputs: {{checkpoint: a/b}}\nstages:\n  {kind}: {{{', '.join(filter(None, options))}}}\n")
    return load_recipe(path, absent=True).stages[0].config


@pytest.mark.parametrize(("kind", "usual", "option", "message"), REFUSED)
def test_what_nothing_reads_is_refused(tmp_path: Path, kind: str, usual: str, option: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, kind, usual, option)
    assert message in str(caught.value) and "recipe.yaml:3: " in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "usual", "option"),
    [
        (
            "sft",
            SFT_FILE,
            "tasks: {}, task_conversations: 100, follow_ups: 0.2, file_share: 0.5, filters: [repetition]",
        ),
        (
            "sft",
            SFT_FILE,
            "too_long: cut, bad_rows: leave_out, task_conversations: 4000",
        ),  # as recipe.yaml spells it out
        ("rl", RL, "inputs: {reward_model: a/b}, reward_model_weight: 0.5"),
        ("rl", RL, "tasks: {}, ptx: {weight: 1, conversations: 2, files: [a.jsonl]}"),
        ("distill", DISTILL % 0, "temperature: 0.7, prompts_per_step: 3, group: 2"),
        ("distill", DISTILL % 0.5, "tasks: {}, max_new_tokens: 9, slots: 2, retries: 1, stop: [a]"),
        ("sft", SFT, "task_conversations: 9, follow_ups: 0.2, template: chatml, template_options: {assistant: me}"),
        ("prefer", OWN, "tasks: {}, samples: 4, prompts: 3, temperature: 0.7, pairs_per_task: 1, length_gap: 9"),
        ("prefer", OWN, f"samples: 4, prompts: 3, temperature: 0.7{KTO}"),
        ("prefer", PREFER % "files: [a.jsonl], too_long: leave_out", "length_gap: 9"),
        ("prefer", TWO, "tasks: {}, prompts: 4, temperature: 0.7, length_gap: 9"),
    ],
)
def test_what_is_read_is_not(tmp_path: Path, kind: str, usual: str, option: str) -> None:
    read(tmp_path, kind, usual, option)


def test_files_of_ones_own_come_without_generated_conversations(tmp_path: Path) -> None:
    """Unless the recipe names them; conversations that an earlier stage has made ask which it shall be."""
    without, named = read(tmp_path, "sft", SFT_FILE), read(tmp_path, "sft", SFT_FILE, "tasks: {}")
    assert isinstance(without, SftConfig) and without.tasks is None
    assert isinstance(named, SftConfig) and named.tasks is not None
    alone = read(tmp_path, "sft", SFT)
    assert isinstance(alone, SftConfig) and alone.tasks is not None
    made = SFT + ", inputs: {conversations: a/b}"
    with pytest.raises(RecipeError, match="tasks: there are conversations of one's own: write tasks: null, or"):
        read(tmp_path, "sft", made)
    null = read(tmp_path, "sft", made, "tasks: null, filters: [repetition], bad_rows: leave_out")
    assert isinstance(null, SftConfig) and null.tasks is None


def test_a_length_in_steps_or_in_epochs(tmp_path: Path) -> None:
    """One of the two; a schedule in shares waits for the steps."""
    config = read(tmp_path, "prefer", PREFER_FILE.replace("steps: 4", "epochs: 2.5"), "schedule: {warmup: 3}")
    assert isinstance(config, PreferConfig) and (config.epochs, config.steps) == (2.5, 0)
    for kind, options, message in (
        ("sft", SFT_FILE + ", epochs: 2", "epochs: `steps` is given too: leave one of them out"),
        ("sft", "files: [a.jsonl], sequence_length: 64", "steps: give the number of optimizer steps, or `epochs`"),
        (
            "prefer",
            "epochs: 1, sequence_length: 64, pairs: {refresh: 4}",
            "epochs: with pairs.refresh there are always",
        ),
    ):
        with pytest.raises(RecipeError, match=message):
            read(tmp_path, kind, options)
