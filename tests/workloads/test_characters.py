"""The transformer of characters: pieces of text, causality, loss, sizes and missing data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import characters
from curvebench.workloads.austen import AUSTEN, NOVELS
from curvebench.workloads.characters import AUSTEN_TRANSFORMER, SYMBOLS
from curvebench.workloads.data import DataDamaged
from curvebench.workloads.workload import DataMissing, Problem, Workload
from tests.made_r_files import LINES, write_novels
from tests.workloads.cases import SMALL, random_of


def instance(**settings: Any) -> tuple[Workload, Problem]:
    chosen = AUSTEN_TRANSFORMER.complete({**SMALL["austen_transformer"], **settings})
    return AUSTEN_TRANSFORMER.at(chosen), AUSTEN_TRANSFORMER.problem(chosen, random_of(0))


def test_examples_are_pieces_of_the_novels_with_the_character_after_each():
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 81
    _, problem = instance()
    whole = "\n".join(LINES)
    for split, count, novels in (("train", 25, 5), ("validation", 10, 1)):
        fields, text = problem.splits[split], "\n".join([whole] * novels)
        assert fields["tokens"].shape == fields["labels"].shape == (count, 6)
        np.testing.assert_array_equal(fields["tokens"][:, 1:], fields["labels"][:, :-1])
        for tokens, labels in zip(fields["tokens"], fields["labels"], strict=True):
            assert "".join(SYMBOLS[k] for k in [*tokens, labels[-1]]) in text
        assert len(np.unique(fields["tokens"], axis=0)) > count / 2


def test_novels_of_validation_are_not_in_the_training_split(novels_folder):
    texts = [[str(number) * 30] for number in range(6)]
    write_novels(novels_folder, texts)
    _, problem = instance(context=3)
    found = {
        split: {SYMBOLS[k] for k in np.unique(fields["tokens"])} for split, fields in problem.splits.items()
    }
    assert found["validation"] == {"5"}
    assert found["train"] - {"\n"} == set("01234")


def test_a_prediction_depends_on_all_characters_before_it_and_on_none_after_it():
    workload, problem = instance(depth=2)
    split = problem.splits["train"]
    assert workload.likelihood is not None
    before = workload.likelihood.outputs(numpy_ops(), problem.parameters, {}, split, {})
    tokens = split["tokens"].copy()
    tokens[:, 3] = (tokens[:, 3] + 1) % 81
    after = workload.likelihood.outputs(numpy_ops(), problem.parameters, {}, {"tokens": tokens}, {})
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.all(np.abs(before[:, 3:] - after[:, 3:]).max(axis=(0, 2)) > 1e-6)


def test_the_network_and_its_loss_are_those_of_pytorch():
    workload, problem = instance(width=32)
    generator = np.random.default_rng(0)  # norms and biases are otherwise 1 and 0
    values = {
        name: torch.tensor(value + 0.1 * generator.normal(size=value.shape))
        for name, value in problem.parameters.items()
    }
    split = problem.splits["train"]
    tokens, labels = torch.tensor(split["tokens"]), torch.tensor(split["labels"])
    x = values["characters"][tokens] + values["positions"]

    def linear(x, name):
        return torch.nn.functional.linear(x, values[f"{name}_weight"], values[f"{name}_bias"])

    def norm(x, name):
        scale, shift = values[f"{name}_scale"], values[f"{name}_shift"]
        return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-6)

    attention = torch.nn.MultiheadAttention(32, 2, batch_first=True, dtype=torch.float64)
    parts = [f"block1_{part}" for part in ("query", "key", "value")]
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([values[f"{part}_weight"] for part in parts]))
        attention.in_proj_bias.copy_(torch.cat([values[f"{part}_bias"] for part in parts]))
        attention.out_proj.weight.copy_(values["block1_mixed_weight"])
        attention.out_proj.bias.copy_(values["block1_mixed_bias"])
        normed = norm(x, "block1_before_attention")
        mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
        x = x + attention(normed, normed, normed, attn_mask=mask)[0]
        wide = torch.nn.functional.gelu(linear(norm(x, "block1_before_mlp"), "block1_wide"))
        logits = linear(norm(x + linear(wide, "block1_narrow"), "last"), "head")
    due = torch.nn.functional.cross_entropy(logits.reshape(-1, 81), labels.reshape(-1))
    params = {name: value.numpy() for name, value in values.items()}
    loss = workload.loss(numpy_ops(), params, {}, split, {})[0]
    assert float(loss) == pytest.approx(float(due), rel=1e-12)
    assert float(workload.evaluate(numpy_ops(), params, {}, split)["loss"]) == float(loss)
    assert workload.likelihood is not None
    assert (workload.likelihood.family, workload.likelihood.scale) == ("categorical", 1 / 6)


def test_settings_give_the_sizes_and_roles():
    settings = AUSTEN_TRANSFORMER.complete({})
    shapes, roles = AUSTEN_TRANSFORMER.shapes_at(settings), AUSTEN_TRANSFORMER.roles(settings)
    assert f"d = {sum(map(np.prod, shapes.values()))}" in AUSTEN_TRANSFORMER.description
    assert {name for name, role in roles.items() if role.kind == "embedding"} == {"characters", "positions"}
    assert [name for name, role in roles.items() if role.kind == "head"] == ["head_weight"]
    _, problem = instance(depth=3, context=7, width=48, qkv_matrices=1)
    assert problem.parameters["positions"].shape == (7, 48)
    assert problem.parameters["characters"].shape == (81, 48)
    assert problem.parameters["block3_query_key_value_weight"].shape == (144, 48)
    assert "block4_mixed_weight" not in problem.parameters
    deviation = AUSTEN_TRANSFORMER.sample_parameters(settings, np.random.default_rng(0))["characters"].std()
    assert deviation == pytest.approx(1 / 8, rel=0.05)
    with pytest.raises(ValueError, match="width = 24 is not a multiple of 16"):
        AUSTEN_TRANSFORMER.complete({"width": 24})
    with pytest.raises(ValueError, match="batch_size = 9 is larger than the 8 training examples"):
        AUSTEN_TRANSFORMER.complete({"batch_size": 9, "train_examples": 8})


def test_missing_and_other_novels_are_refused(novels_folder):
    with pytest.raises(DataMissing, match="apt-get install r-cran-janeaustenr"):
        instance()
    assert AUSTEN_TRANSFORMER.missing({}) == AUSTEN.missing()
    assert AUSTEN_TRANSFORMER.files({}) == ()
    path = write_novels(novels_folder, [["cafe\u0301 " * 9]] * len(NOVELS))
    characters._numbers.cache_clear()
    with pytest.raises(DataDamaged, match="the novels have '\u0301'") as error:
        instance()
    assert str(path) in str(error.value)
    assert AUSTEN_TRANSFORMER.files({}) == (path.with_suffix(".rdx"), path)
