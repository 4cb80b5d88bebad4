"""Optimizers of other libraries: files, groups, closures, averages, and what is refused before a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.backends.engine import engine
from curvebench.backends.torch_lane_optimizers import LaneOptimizers
from curvebench.commands.studies import check_methods
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.execution import execute
from curvebench.engine.memory import lanes_per_bundle
from curvebench.interop.foreign import named_in
from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan
from curvebench.planning.studies.validation import read_study
from curvebench.registry import RULES, find_rule, origin
from curvebench.spec.errors import InputError
from tests.curvebench.engine.test_execution import changed
from tests.curvebench.test_registry import bundle_of
from tests.curvebench.tiny import write_study
from tests.curvebench.toys import TANH
from tests.curvebench.user_files import user_file

STEPS = 8
OWN = user_file("foreign.py")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def alone(locator: str, evaluations: int = STEPS, **arguments: Any) -> Bundle:
    """Return a bundle of a single run of an optimizer of another library on the small tanh network."""
    bundle = bundle_of(locator, arguments, False, learning_rate=(0.05,))
    return dataclasses.replace(bundle.subset(slice(0, 1), slice(0, 1)), evaluations=evaluations)


def run(locator: str, evaluations: int = STEPS, **arguments: Any) -> Trajectories:
    bundle = alone(locator, evaluations, **arguments)
    assert bundle.rule.backend is not None
    return execute(bundle, engine(bundle.rule.backend, "float64"))


Params = dict[str, torch.Tensor]


def by_hand(make: Callable[[Params], list[Any]], closure: bool = False, averaged: bool = False) -> float:
    """Return the last training loss of the same run by a plain loop over optimizers of PyTorch."""
    bundle = alone("torch:torch.optim.SGD")
    problem, ops = bundle.problems[0], engine("torch", "float64").ops
    params = {name: torch.tensor(value, requires_grad=True) for name, value in problem.parameters.items()}
    seen = {"seen": torch.zeros(())}
    optimizers = make(params)
    for step in range(STEPS):
        order = bundle.orders[step, 0]  # type: ignore[index]
        batch = {name: torch.tensor(one[order]) for name, one in problem.splits["train"].items()}

        def evaluate(batch: Any = batch) -> Any:
            for param in params.values():
                param.grad = None
            loss = TANH.loss(ops, params, seen, batch, {})[0]
            loss.backward()
            return loss

        evaluate()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial", group["lr"]) * float(bundle.schedule[step])
            optimizer.step(*([evaluate] if closure else []))
    if averaged:
        optimizers[0].eval()
    train = {name: torch.tensor(one) for name, one in problem.splits["train"].items()}
    return float(TANH.evaluate(ops, params, seen, train)["loss"].detach())


def test_what_a_study_or_a_data_table_says_of_arguments_is_done() -> None:
    """Matrices by Muon, the others by AdamW, as two and as groups of one; and one around another."""
    import pytorch_optimizer

    def split(params: Params) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        matrices = [param for param in params.values() if param.ndim == 2]
        return matrices, [param for param in params.values() if param.ndim != 2]

    def two(params: Params) -> list[Any]:
        matrices, others = split(params)
        return [
            torch.optim.Muon(matrices, lr=0.05, momentum=0.8),
            torch.optim.AdamW(others, lr=0.01, betas=(0.8, 0.9)),
        ]

    def one(params: Params) -> list[Any]:
        matrices, others = split(params)
        groups = [{"params": matrices, "use_muon": True}, {"params": others, "use_muon": False}]
        return [pytorch_optimizer.Muon(groups, lr=0.05)]

    def around(params: Params) -> list[Any]:
        inside = torch.optim.AdamW(params.values(), lr=0.05)
        return [pytorch_optimizer.Lookahead(inside)]

    others = {"optimizer": "torch:torch.optim.AdamW", "learning_rate": 0.01, "betas": [0.8, 0.9]}
    found = run("torch:torch.optim.Muon", momentum=0.8, groups={"weight": {}, "others": others})
    np.testing.assert_allclose(found.metrics["train_loss"][-1, 0, 0], by_hand(two), rtol=1e-11)
    found = run("torch:pytorch_optimizer.Muon")
    np.testing.assert_allclose(found.metrics["train_loss"][-1, 0, 0], by_hand(one), rtol=1e-11)
    found = run("torch:pytorch_optimizer.Lookahead")
    np.testing.assert_allclose(found.metrics["train_loss"][-1, 0, 0], by_hand(around), rtol=1e-11)
    named = list(named_in({"groups": {"others": others}}))
    assert origin(RULES, named[0]).packages == ("torch",)


def test_a_file_in_an_argument_is_found_beside_the_study_and_is_part_of_the_hash(own: Path) -> None:
    entry = "{torch:torch.optim.Muon: {groups: {others: {optimizer: torch:own.py:Rebinding}}}}"
    study = write_study(own.parent, ("[sgd, adam]", f"[adam, {entry}]"))
    check_methods([read_study(study)])
    plan = make_plan(Config(study_folder=study.parent, studies=("tiny",)))
    specs = [
        job.spec for job in plan.jobs if job.spec.stage == "runs" and "Muon" in job.spec.optimizers[0].locator
    ]
    assert specs
    assert all(f"file:{own}" in spec.sources for spec in specs)


@pytest.mark.parametrize("given", [{"betas": [0.8, 0.5]}, {}])
def test_an_item_of_an_argument_may_be_tuned(given: dict[str, Any]) -> None:
    values = {"learning_rate": (0.05,), "betas.1": (0.95,)}
    bundle = bundle_of("torch:torch.optim.Adam", given, False, **values).subset(slice(0, 1), slice(0, 1))
    result = execute(bundle, engine("torch", "float64"))
    first = given.get("betas", [0.9])[0]
    expected = by_hand(lambda params: [torch.optim.Adam(params.values(), lr=0.05, betas=(first, 0.95))])
    np.testing.assert_allclose(result.metrics["train_loss"][-1, 0, 0], expected, rtol=1e-11)
    assert result.state_bytes >= 2 * 8 * bundle.layout.total, "two moments"
    wrong = bundle_of("torch:torch.optim.Adam", given, False, learning_rate=(0.05,), **{"betas.2": (0.9,)})
    with pytest.raises(InputError, match=r"betas\.2 is tuned, and betas = .* has no such item"):
        execute(wrong.subset(slice(0, 1), slice(0, 1)), engine("torch", "float64"))


@pytest.mark.parametrize("locator", ["torch:torch.optim.LBFGS", "torch:pytorch_optimizer.SAM"])
def test_a_closure_takes_the_gradient_of_the_step_s_minibatch_and_is_counted(locator: str) -> None:
    import pytorch_optimizer

    def make(params: Params) -> list[Any]:
        if locator.endswith("SAM"):
            return [pytorch_optimizer.SAM(params.values(), torch.optim.SGD, lr=0.05)]
        return [torch.optim.LBFGS(params.values(), lr=0.05, max_iter=3)]

    arguments = {} if locator.endswith("SAM") else {"max_iter": 3}
    found = run(locator, **arguments)
    np.testing.assert_allclose(found.metrics["train_loss"][-1, 0, 0], by_hand(make, closure=True), rtol=1e-11)
    each = 1 if locator.endswith("SAM") else 3
    assert found.closure_gradients.tolist() == [each * step for step in range(STEPS + 1)]


def test_an_average_is_judged_where_its_authors_say_and_trains_on_where_it_was() -> None:
    import pytorch_optimizer

    def make(params: Params) -> list[Any]:
        optimizer = pytorch_optimizer.ScheduleFreeSGD(params.values(), lr=0.05)
        optimizer.train()
        return [optimizer]

    name = "torch:pytorch_optimizer.ScheduleFreeSGD"
    expected = by_hand(make, averaged=True)
    for evaluations in (1, STEPS):
        found = run(name, evaluations).metrics["train_loss"][-1, 0, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert abs(expected - by_hand(make)) > 1e-6


def by_hand_in_jax(make: Callable[[float], Any], with_value: bool = False) -> tuple[float, float]:
    """Return the last training losses of the same run by a plain loop: at the average of the iterates, and at
    the iterate.
    """
    import jax
    import jax.numpy as jnp
    import optax

    made = engine("jax", "float64")
    bundle = alone("optax:optax.sgd")
    problem = bundle.problems[0]

    def loss_at(params: Any, batch: Any) -> Any:
        return TANH.loss(made.ops, params, {"seen": 0.0}, batch, {})[0]

    with made.context():
        gradient = jax.jit(jax.value_and_grad(loss_at))
        params = {name: jnp.asarray(value) for name, value in problem.parameters.items()}
        state = None
        for step in range(STEPS):
            order = bundle.orders[step, 0]  # type: ignore[index]
            batch = {name: jnp.asarray(one[order]) for name, one in problem.splits["train"].items()}
            loss, grads = gradient(params, batch)
            transformation = make(0.05 * float(bundle.schedule[step]))
            state = transformation.init(params) if state is None else state
            known = {"value": loss} if with_value else {}
            updates, state = transformation.update(grads, state, params, **known)
            params = optax.apply_updates(params, updates)
        has_average = hasattr(state, "z") and hasattr(state, "b1")
        average = optax.contrib.schedule_free_eval_params(state, params) if has_average else params
        first, second = (
            float(TANH.evaluate(made.ops, one, {"seen": jnp.zeros(())}, problem.splits["train"])["loss"])
            for one in (average, params)
        )
    return first, second


def test_lanes_of_an_optax_transformation_are_runs_of_their_own() -> None:
    """Each seed and setting gives the same losses as this project's rule; the schedule multiplies the
    learning rate.
    """
    values = {"learning_rate": (0.02, 0.1), "weight_decay": (0.0, 0.3)}
    theirs, rule = bundle_of("optax:optax.adamw", {"b1": 0.8}, False, **values), find_rule("adamw")
    fixed = {name: np.full(2, value) for name, value in rule.complete({"beta1": 0.8}, [*values]).items()}
    ours = dataclasses.replace(theirs, rule=rule, hyperparameters={**fixed, **theirs.hyperparameters})
    found, expected = (execute(one, engine("jax", "float64")).metrics["train_loss"] for one in (theirs, ours))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_an_average_of_optax_is_judged_where_its_authors_say() -> None:
    import optax

    found = run("optax:optax.contrib.schedule_free_sgd", b1=0.8).metrics["train_loss"][-1, 0, 0]
    there, elsewhere = by_hand_in_jax(lambda rate: optax.contrib.schedule_free_sgd(rate, b1=0.8))
    np.testing.assert_allclose(found, there, rtol=1e-11)
    assert abs(there - elsewhere) > 1e-6


def test_a_transformation_that_needs_it_is_given_the_value_of_the_loss() -> None:
    import optax

    found = run("optax:optax.contrib.momo").metrics["train_loss"][-1, 0, 0]
    expected, _ = by_hand_in_jax(optax.contrib.momo, with_value=True)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_an_optimizer_that_gives_parameters_other_memory_still_moves_the_run(own: Path) -> None:
    found, expected = (run(one).metrics for one in (f"torch:{own}:Rebinding", "torch:torch.optim.SGD"))
    np.testing.assert_allclose(found["train_loss"], expected["train_loss"], rtol=1e-11)


@pytest.mark.parametrize(
    "name", ["torch.optim.Adam", "pytorch_optimizer.ScheduleFreeSGD", "own.py:Rebinding"]
)
def test_lanes_that_run_together_are_those_that_run_alone(name: str, own: Path) -> None:
    """Each lane has an optimizer of its own, with its own rate, and stops by itself."""
    whole = bundle_of(f"torch:{name.replace('own.py', str(own))}", {}, False, learning_rate=(0.01, 0.05))
    whole = changed(whole, evaluations=2, stop_gradient_norm=1.5)
    assert lanes_per_bundle(whole, 8, 1 << 30) == whole.lanes == (3, 2)
    together = execute(whole, engine("torch", "float64"))
    for seed, setting in np.ndindex(*whole.lanes):
        lane = np.s_[seed : seed + 1, setting : setting + 1]
        found = execute(whole.subset(*lane), engine("torch", "float64"))
        np.testing.assert_allclose(
            together.metrics["train_loss"][:, *lane], found.metrics["train_loss"], rtol=1e-12
        )
        assert together.stopped_at[lane] == found.stopped_at
    assert 0 < (together.stopped_at > 0).sum() < together.stopped_at.size


# --- what is refused ----------------------------------------------------------------------------------


def test_a_step_that_fails_later_is_told_by_its_number() -> None:
    """And without what would help only where no step can be taken."""

    class Tiring(torch.optim.SGD):  # type: ignore[misc]  # torch has no types here
        def step(self, closure: None = None) -> None:
            if self.param_groups[0]["momentum"] > 0:
                raise RuntimeError("tired")

    leaf = torch.zeros(2)
    optimizer = Tiring([leaf], lr=0.1)
    contestant = LaneOptimizers("tiring", [optimizer], [leaf], closure=False)
    contestant.step([leaf], 1.0, lambda: (leaf, [leaf]))
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(InputError, match=r"tiring: step 2 fails .*tired, test_foreign\.py line \d+\)$"):
        contestant.step([leaf], 1.0, lambda: (leaf, [leaf]))
