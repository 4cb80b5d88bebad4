"""Operations of a single run, counted on arrays that have shapes and no values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from curvebench.engine.examples import placeholders
from curvebench.engine.execution import Bundle, Loaded, load
from curvebench.engine.program import Inputs, Work
from curvebench.optimizers.bases import Group
from curvebench.optimizers.gradient_descent import SGD
from curvebench.spec.values import Precision
from curvebench.workloads.workload import examples_in, placeholder_of

FEW = 2  # examples that evaluation is counted on
MOST_STEPS = 100_000  # whose amortized work is looked at
# Of n^3, with vectors and square right sides (Golub and Van Loan 2013, Sec. 3.2, 4.2, 5.2, 8.3, 8.6)
EIGH, QR, SVD, CHOLESKY, SOLVE, INVERSE, TRIANGULAR = 9.0, 8 / 3, 22.0, 1 / 3, 8 / 3, 2.0, 1.0


@dataclass(frozen=True)
class Operations:
    """Additions and multiplications of products, and of decompositions, which are far slower."""

    products: float = 0.0
    decompositions: float = 0.0

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.products + other.products, self.decompositions + other.decompositions)

    def __mul__(self, times: float) -> Operations:
        return Operations(times * self.products, times * self.decompositions)


@dataclass(frozen=True)
class Counted:
    """Of a run: a mean step, the gradient alone, and an evaluation of all splits that are evaluated."""

    step: Operations
    gradient: Operations
    evaluation: Operations


def count(bundle: Bundle, precision: Precision, steps: int | None = None) -> Counted:
    """Count a bundle of one lane, without reading an example.

    Args:
        steps: of the run, over which amortized work is averaged; None: as many as the bundle has.
        bundle: with a minibatch; of its matrices shapes alone count.
        precision: the word of the policy that it runs in; it decides nothing but dtypes.
    """
    import torch

    from curvebench.backends.torch_engine import TorchEngine

    if bundle.rule.backend is not None:  # another library's: its own products are not counted
        bundle = replace(bundle, rule=SGD, hyperparameters={"learning_rate": np.ones(1)})
    made = TorchEngine(precision, "meta")
    with made.context(), torch.no_grad():
        loaded = load(bundle, made)
        inputs = _inputs(bundle, made.ops.asarray)
        cadence = loaded.program.update.cadence
        by_work = {work: counted(partial(_step, loaded, inputs, work)) for work in cadence}
        gradient = counted(partial(_gradient, loaded, inputs, Work.NONE))
        evaluation = _evaluation(bundle, made)
    steps = min(steps or len(bundle.schedule), MOST_STEPS)
    found = Counter(bundle.update.work_of(step) for step in range(1, steps + 1))
    mean = sum((by_work[work] * (times / steps) for work, times in found.items()), Operations())
    return Counted(mean, gradient, evaluation)


def of_basis(
    groups: Iterable[Group], parameters: Mapping[str, np.ndarray], gradients: int, gradient: Operations
) -> Operations:
    """One estimate of a basis: its gradients, their Gram matrices, and an eigendecomposition of each group.

    Args:
        parameters: by the names of the groups.
        gradients: how many are sampled; each filter or row that shares V is a sample.
        gradient: what one takes.
    """
    found = gradient * gradients
    for group in groups:
        entries = sum(parameters[name].size for name in group.names)
        found += Operations(2.0 * gradients * entries * group.size, EIGH * group.size**3)
    return found


def counted(function: Callable[[], Any]) -> Operations:
    """The operations of PyTorch that a function leads to."""
    from torch import ops
    from torch.utils.flop_counter import FlopCounterMode

    cubic = {
        ops.aten._linalg_eigh: EIGH,
        ops.aten.linalg_qr: QR,
        ops.aten._linalg_svd: SVD,
        ops.aten.linalg_cholesky_ex: CHOLESKY,
        ops.aten._linalg_solve_ex: SOLVE,
        ops.aten.linalg_inv_ex: INVERSE,
        ops.aten.linalg_solve_triangular: TRIANGULAR,
    }

    def cost(factor: float) -> Callable[..., int]:
        def of(shape: Any, *unused: Any, out_val: Any = None, **others: Any) -> int:
            *batch, rows, columns = shape
            return round(factor * int(np.prod(batch)) * max(rows, columns) * min(rows, columns) ** 2)

        return of

    with FlopCounterMode(
        display=False, custom_mapping={op: cost(factor) for op, factor in cubic.items()}
    ) as counter:
        function()
    totals = counter.get_flop_counts().get("Global", {})
    slow = sum(float(totals.get(op, 0)) for op in cubic)
    return Operations(float(counter.get_total_flops()) - slow, slow)


def _inputs(bundle: Bundle, sent: Callable[[np.ndarray], Any]) -> Inputs:
    """Those of the first step: a minibatch of the right shape."""
    train, size = bundle.problems[0].splits["train"], bundle.batch_size
    like = {
        name: np.broadcast_to(value, (1, size, *np.shape(value)))
        for name, value in placeholder_of(train).items()
    }
    noise = (
        {name: sent(np.asarray(value)[None]) for name, value in bundle.draws(0, 1).items()}
        if bundle.is_random
        else None
    )
    one = sent(np.ones(()))
    return Inputs(one, one, None, {name: sent(value) for name, value in like.items()}, noise)


def _gradient(loaded: Loaded, inputs: Inputs, work: Work) -> Any:
    point = loaded.program.point(loaded.carry, loaded.constants, inputs)
    return loaded.program.evaluate(point, loaded.carry.model, loaded.constants, inputs, work)


def _step(loaded: Loaded, inputs: Inputs, work: Work) -> None:
    info = _gradient(loaded, inputs, work)
    loaded.program.apply(loaded.carry, info, loaded.constants, inputs, work)


def _evaluation(bundle: Bundle, made: Any) -> Operations:
    problem, ops, total = bundle.problems[0], made.single_run_ops, Operations()
    params, state = (
        {name: ops.asarray(value) for name, value in arrays.items()}
        for arrays in (problem.parameters, problem.state)
    )
    for name in bundle.workload.evaluated_splits:
        split = problem.splits[name]
        few = {field: ops.asarray(value) for field, value in placeholders(split, FEW).items()}
        one = counted(partial(bundle.workload.evaluate, ops, params, state, few))
        total += one * (examples_in(split) / FEW)
    return total
