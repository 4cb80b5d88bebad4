"""What files find by name is read from their text: strings are names where something is looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.planning.lookups import looked_up
from optimizers import module_of, rules
from optimizers.bases import bases
from workloads import workloads

ADAM = "optimizers.adam"
JAX, TORCH = "harness.backends.jax_engine", "harness.backends.torch_engine"
ALL_RULES = {module_of(name) for name in rules()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name = 'adam'", set()),
        ("from optimizers import Rule\nRule('adam')", set()),
        ("from optimizers import rules\nrules()['adam']", {ADAM}),
        ("def late():\n    from optimizers import rules\n    return rules()[name('adam')]", {ADAM}),
        ("from harness import Online\nOnline('adam', {})", {ADAM, "harness.engine.replaying"}),
        ("from harness import replay as r\nr('adam', {})", {ADAM, "harness.engine.replaying"}),
        ("from optimizers import rules\nrules()['ad' + 'am']", ALL_RULES),
        ("from optimizers import rules\nfor name in rules():\n    'adam'", ALL_RULES),
        ("from optimizers.bases import bases\nbases()['egop']", {"optimizers.bases.egop"}),
        ("import harness\nharness.Online('adam', {})", {ADAM, "harness.engine.replaying"}),
        ("import optimizers\nfor rule in optimizers.rules().values():\n    'adam'", ALL_RULES),
        ("from workloads import workloads\nworkloads()['digits_mlp']", {"workloads.digits"}),
        ("from harness.backends.engine import engine\nengine('jax', 'float32')", {JAX}),
        ("from harness.backends.engine import engine\nengine(name(), 'float32')", {JAX, TORCH}),
        (
            "from harness import Online\nOnline('adam', {}, {}, 'jax')",
            {ADAM, "harness.engine.replaying", JAX},
        ),
    ],
)
def test_names_become_modules(tmp_path: Path, text: str, found: set[str]):
    assert {"adam", "egop", "digits_mlp"} < {*rules(), *bases(), *workloads()}
    path = tmp_path / "claims.py"
    path.write_text(text)
    assert set(looked_up([path])) == found


def test_files_share_their_names(tmp_path: Path):
    (tmp_path / "one.py").write_text(
        "from optimizers import rules\ndef of(name):\n    return rules()[name]\n"
    )
    (tmp_path / "other.py").write_text("from one import of\nof('adam')\n")
    assert looked_up([tmp_path / "one.py", tmp_path / "other.py"]) == (ADAM,)
