"""What an ablation's file becomes: one variable an intervention, matched sizes, seeds in the same stages; all shipped files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ingot.lab.ablation import Ablation, Arm, plan_ablation
from ingot.lab.cost import plan_cost
from ingot.planner.cost import stage_costs, stage_models
from ingot.workspace.errors import RecipeError

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for path in (ROOT / "recipes" / "ablations").glob("*.yaml") if not path.stem.endswith("base"))
HEAD = f"""
baseline: {ROOT}/recipes/ablations/base.yaml
measure: {{ stage: pretrain, metric: validation_bits_per_byte, lower_is_better: true }}
curve: []
seeds: 2
"""
BLOCK = "pretrain.model.blocks.*"


def planned(folder: Path, interventions: str, head: str = HEAD) -> Ablation:
    path = folder / "a.yaml"
    path.write_text(head + "interventions:\n" + "".join(f"  {line}\n" for line in interventions.splitlines()))
    return plan_ablation(path)


def arm(made: Ablation, name: str) -> Arm:
    return next(each for each in made.arms if each.name == name)


def recipe_of(made: Ablation, name: str) -> Any:
    return next(run.recipe for run in made.runs if run.arm.name == name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_ablation_is_short_and_plans(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    made = plan_ablation(path)
    assert made.config.interventions.keys() == {each.sweep or each.name for each in made.arms[1:]}
    assert all(len(each.variables) == 1 for each in made.arms[1:])
    if made.config.match != "none":
        assert all(each.matched is not None and abs(each.matched.after - 1) <= 0.01 for each in made.arms[1:])


def transformers_parameters(made: Ablation, name: str) -> int:
    """The parameters of an arm's model as transformers builds it, without memory."""
    recipe = recipe_of(made, name)
    model = stage_models(recipe)["pretrain"]
    assert model is not None and model.vocabulary_size is not None
    mixer: Any = model.blocks["layer"].mixer
    forward: Any = model.blocks["layer"].feed_forward
    config = LlamaConfig(
        vocab_size=model.vocabulary_size,
        hidden_size=model.width,
        num_hidden_layers=model.depth,
        num_attention_heads=mixer.heads,
        num_key_value_heads=mixer.key_value_heads,
        head_dim=mixer.head_width,
        intermediate_size=forward.width,
        tie_word_embeddings=model.tied_embeddings,
    )
    with torch.device("meta"):
        return sum({id(p): p.numel() for p in LlamaForCausalLM(config).parameters()}.values())


def test_matched_variants_have_the_parameters_that_transformers_counts(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        f"mha: {{ set: {{ {BLOCK}.mixer.key_value_heads: 4 }} }}\n"
        f"mqa: {{ set: {{ {BLOCK}.mixer.key_value_heads: 1 }} }}\n"
        "untied: { set: { pretrain.model.tied_embeddings: false } }\n"
        "narrow: { set: { pretrain.model.tied_embeddings: false }, adjust: feed_forward }",
        HEAD + "match: parameters\n",
    )
    base = transformers_parameters(made, "baseline")
    for name in ("mha", "mqa", "untied", "narrow"):
        found, matched = transformers_parameters(made, name), arm(made, name).matched
        assert matched is not None and matched.changes
        assert abs(found / base - 1) <= 0.01
        assert matched.after == pytest.approx(found / base, rel=1e-12)
    untied = arm(made, "untied")
    assert untied.matched is not None and any("layers=layer*" in change for change in untied.matched.changes)
    assert [variable.key for variable in untied.variables] == ["pretrain.model.tied_embeddings"]


def test_flops_are_matched_by_steps_where_the_model_itself_is_what_changes(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        "deeper: { set: { pretrain.model.layers: layer*4 } }\nlong: { set: { pretrain.batch_tokens: 2048 } }",
        HEAD + "match: flops\n",
    )
    base = stage_costs(recipe_of(made, "baseline"))["pretrain"].flops
    for name in ("deeper", "long"):
        own = stage_costs(recipe_of(made, name))["pretrain"].flops
        assert base is not None and own is not None and abs(own / base - 1) <= 0.01
    assert recipe_of(made, "long").stage("pretrain").config.steps == 80
    assert not arm(made, "deeper").paired  # the same seed, but fewer steps of data


def test_pairs_share_their_data(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        f"norm: {{ set: {{ {BLOCK}.mixer.query_key_norm: head }} }}\n"
        "rate: { set: { pretrain.optimizer.lr: 1e-3 } }\n"
        "mixture: { set: { pretrain.phases: [{ until: 1, weights: { prose: 1 } }] } }\n"
        "rows: { set: { pretrain.sequence_length: 64 } }",
    )
    assert {each.name: each.paired for each in made.arms[1:]} == {
        "norm": True,
        "rate": True,
        "mixture": False,
        "rows": False,
    }
    assert {run.recipe.stage("pretrain").seed for run in made.runs} == {1, 2}
    assert {run.recipe.stage("tokenizer").seed for run in made.runs} == {1}
    assert [(run.seed, run.arm.name) for run in made.runs[:5]] == [
        (1, name) for name in ("baseline", "norm", "rate", "mixture", "rows")
    ]


def test_a_part_of_another_kind_is_one_variable_and_replaces_the_old_one(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        "muon: { set: { pretrain.optimizer: { kind: muon, lr: 1e-2 } } }\n"
        f"nope: {{ set: {{ {BLOCK}.mixer.rope: null }} }}\n"
        f"moe: {{ set: {{ {BLOCK}.feed_forward: {{ kind: moe, experts: 4, active: 1, expert: {{ width: 32 }} }} }} }}",
    )
    assert [[variable.key for variable in each.variables] for each in made.arms[1:]] == [
        ["pretrain.optimizer"],
        [f"{BLOCK}.mixer.rope"],
        [f"{BLOCK}.feed_forward"],
    ]
    assert recipe_of(made, "muon").stage("pretrain").config.optimizer.weight_decay == 0.1  # its own, not the old one's


def test_an_option_in_several_blocks_is_one_variable(tmp_path: Path) -> None:
    head = HEAD + (
        "set:\n  pretrain.model.layers: layer other layer\n"
        "  pretrain.model.blocks.other:\n"
        "    { mixer: { heads: 4, key_value_heads: 2, head_width: 16 }, feed_forward: { width: 96 } }\n"
    )
    made = planned(tmp_path, f"norm: {{ set: {{ {BLOCK}.mixer.query_key_norm: head }} }}", head)
    assert len(arm(made, "norm").variables) == 1 and len(arm(made, "norm").changes) == 2


def test_a_sweep_has_an_arm_for_every_other_value(tmp_path: Path) -> None:
    made = planned(tmp_path, "rate: { values: { pretrain.optimizer.lr: [1e-3, 5e-3, 1e-2] } }")
    assert [(each.name, each.value) for each in made.arms[1:]] == [("rate-lr=0.001", 1e-3), ("rate-lr=0.01", 1e-2)]


TWO = f"both: {{ set: {{ pretrain.z_loss: 1e-4, {BLOCK}.mixer.query_key_norm: head }} %s }}"


def test_several_variables_are_confounded_and_must_say_so(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"interventions\.both: it changes 2 variables: pretrain\.z_loss, pretrain\.model"
    ) as caught:
        planned(tmp_path, TWO % "")
    assert "confounded: true" in str(caught.value)
    assert arm(planned(tmp_path, TWO % ", confounded: true"), "both").confounded


@pytest.mark.parametrize(
    ("intervention", "head", "problem"),
    [
        ("a: { set: { pretrain.z_loss: 0.0 } }", "", "changes nothing"),
        ("a: { set: { pretrain.log_every: 5 } }", "", "does not change a result"),
        ("a: { set: { pretrain.z_los: 1.0 } }", "", "did you mean z_loss"),
        ("a: { set: { pretrain.z_loss: 1.0 }, adjust: depth }", "", "nothing is matched"),
        ("a: {}", "", "either `set` or `values`"),
        ("a: { values: { pretrain.z_loss: [1.0] } }", "", "two values or more"),
        ("baseline: { set: { pretrain.z_loss: 1.0 } }", "", "cannot be a name"),
        ("a: { set: { pretrain.model.layers: layer*4 } }", "match: parameters\n", "changes the parameters by itself"),
        (
            f"a: {{ set: {{ {BLOCK}.feed_forward.width: 999 }}, adjust: feed_forward }}",
            "match: flops\n",
            "would change again",
        ),
        ("a: { set: { pretrain.model.width: 1024 }, adjust: feed_forward }", "match: parameters\n", "times as wide"),
        ("a: { set: { pretrain.steps: 99 } }", "match: flops\n", "would change again"),
        ("a: { set: { pretrain.z_loss: 1.0 } }", "kind: annealing\n", "does not branch from a kept step"),
        ("a: { set: { pretrain.z_loss: 1.0 } }", "seeds: 0\n", "at least 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, intervention: str, head: str, problem: str) -> None:
    base = HEAD if "seeds" not in head else HEAD.replace("seeds: 2\n", "")
    with pytest.raises(RecipeError) as caught:
        planned(tmp_path, intervention, base + head)
    assert problem in str(caught.value)


def test_an_annealing_leaves_alone_what_it_branches_from(tmp_path: Path) -> None:
    head = HEAD.replace("ablations/base.yaml", "ablations/anneal-base.yaml").replace("stage: pretrain", "stage: anneal")
    head += "kind: annealing\n"
    made = planned(tmp_path, "slow: { set: { anneal.optimizer.lr: 1e-3 } }", head)
    assert {run.recipe.stage("pretrain").seed for run in made.runs} == {1}
    assert {run.recipe.stage("anneal").seed for run in made.runs} == {1, 2}
    with pytest.raises(RecipeError, match="changes pretrain, from which all runs must branch"):
        planned(tmp_path, "early: { set: { pretrain.z_loss: 1e-4 } }", head)


def test_the_plan_counts_what_all_runs_share_once(tmp_path: Path) -> None:
    made = plan_ablation(ROOT / "recipes" / "ablations" / "anneal.yaml")
    costs = stage_costs(made.recipe)
    trunk, branch = costs["pretrain"].flops, costs["anneal"].flops
    assert trunk is not None and branch is not None
    cost = plan_cost(made, tmp_path)
    assert cost.flops == trunk + 9 * branch and cost.left == 9
    assert "pretrain" in cost.shared and "anneal" not in cost.shared
