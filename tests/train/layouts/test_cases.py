"""The list of layouts is the whole product: every pair has a case, whose recipe says what its name does."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from ingot.train.layouts.cases import find_refusal, list_cases, read_case

KINDS = ("data", "tensor", "context", "pipeline", "expert")  # written out here: the list may grow, never shrink
METHODS = (
    *("float8", "LoRA", "compile", "recomputation", "multi-token prediction"),
    *("tied embeddings", "sparse attention", "recurrent mixers"),
)
CASES = {case.name: case for case in list_cases(8)}


def test_every_pair_has_a_case() -> None:
    pairs = {frozenset(pair) for pair in (*product(KINDS, METHODS), *combinations(KINDS, 2))}
    listed = {frozenset((*case.kinds, *([case.method] if case.method else []))) for case in CASES.values()}
    assert len(pairs) == 5 * 8 + 10
    assert pairs <= listed, pairs - listed
    assert {frozenset(triple) for triple in combinations(KINDS, 3)} <= listed


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_parallelism_is_in_the_mesh_of_all_its_cases(kind: str) -> None:
    for case in CASES.values():
        if kind in case.kinds and find_refusal(case) is None:
            mesh = read_case(case)[1].mesh
            sizes = {"data": mesh.shard * mesh.replicate, **mesh.model_dump()}
            assert sizes[kind] > 1, case.name
            assert case.processes == mesh.replicate * mesh.shard * mesh.tensor * mesh.context * mesh.pipeline


def test_a_method_is_in_the_recipe_of_all_its_cases() -> None:
    """As the trainer reads it, or in the model."""
    seen = set()
    for case in CASES.values():
        if case.method is None or find_refusal(case) is not None:
            continue
        model, training = read_case(case)
        mixers = [model.block(layer).mixer for layer in range(model.depth)]
        there = {
            "bfloat16": training.precision == "bfloat16",
            "float8": training.precision == "float8",
            "LoRA": training.lora is not None and training.lora.base == "float32",
            "QLoRA": training.lora is not None and training.lora.base == "nf4",
            "compile": training.compile == "blocks",
            "recomputation": training.activations.keep == "blocks",
            "kept products": training.activations.keep == "products",
            "multi-token prediction": model.multi_token is not None,
            "tied embeddings": model.tied_embeddings,
            "sparse attention": all(getattr(mixer, "sparse", None) is not None for mixer in mixers),
            "recurrent mixers": {mixer.kind for mixer in mixers if mixer is not None}
            == {"gated_delta", "kda", "mamba2", "lightning"},
            "noise scale": training.measure_noise,
        }
        assert there[case.method], case.name
        assert sum(there.values()) == 1, (case.name, there)
        seen.add(case.method)
    assert seen >= set(METHODS)


REFUSED = {
    "pipeline × noise scale": "measure_noise: ",
    "copies × noise scale": "measure_noise: ",
    "interleaved × noise scale": "measure_noise: ",
}


def test_what_cannot_work_is_refused_when_the_recipe_is_read() -> None:
    refusals = {name: refusal for name, case in CASES.items() if (refusal := find_refusal(case)) is not None}
    assert refusals.keys() == REFUSED.keys()
    for name, beginning in REFUSED.items():
        assert refusals[name].startswith(beginning)
