"""Finds a kind of stage: a built-in one by its name, or the user's `file.py:Name`.

The built-in kinds stand in the `stages.py` of their room, with all that a recipe, the planner, the commands and the report want
of them; here is only their order. They are light: config and code are imported when they are asked for.
"""

from __future__ import annotations

from ingot.data.stages import CurateStage
from ingot.evals.stages import ChooseStage, EvalStage, VerdictStage
from ingot.post.stages import DistillStage, PreferStage, RewardStage, RlStage, SftStage, SynthesizeStage
from ingot.tokens.stages import TokenizerStage, TokenizeStage
from ingot.train.stages import MergeStage, PretrainStage
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import adopt, is_outside, load_outside, spec_of
from ingot.workspace.stage import Stage


class Table(dict[str, Stage]):
    """The built-in kinds by name."""

    def find(self, kind: str) -> Stage:
        """The kind of this name, or `file.py:Name`. A RecipeError says what is wrong and what is near."""
        if is_outside(kind):
            found = adopt(load_outside(kind), kind, Stage, "stage kind")  # type: ignore[type-abstract]
            return found(spec_of(found))
        if kind not in self:
            raise RecipeError(
                f"there is no stage kind {kind}", fix=suggestion(kind, self, "stage kinds besides file.py:Name")
            )
        return self[kind]


STAGES = Table(
    {
        "curate": CurateStage("curate"),
        "synthesize": SynthesizeStage("synthesize"),
        "tokenizer": TokenizerStage("tokenizer"),
        "tokenize": TokenizeStage("tokenize"),
        "pretrain": PretrainStage("pretrain"),
        "sft": SftStage("sft"),
        "prefer": PreferStage("prefer"),
        "reward": RewardStage("reward"),
        "rl": RlStage("rl"),
        "distill": DistillStage("distill"),
        "eval": EvalStage("eval"),
        "choose": ChooseStage("choose"),
        "merge": MergeStage("merge"),
        "verdict": VerdictStage("verdict"),
    }
)
