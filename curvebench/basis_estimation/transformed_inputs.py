"""Change of basis of a first layer by a change of its data.

A layer with weight W computes W x = (W Q)(Q^T x) from its inputs x, for any orthogonal matrix Q. Therefore
training the weight W in the basis Q of its inputs is the same as training the weight W Q on the data Q^T x.
Source 000 is the EGOP paper (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from curvebench.optimizers.bases import Change
from curvebench.optimizers.bases.change import DATA
from curvebench.spec.errors import InputError
from curvebench.workloads.workload import Problem, Workload

Names = tuple[str, ...]


def check_inputs(workload: Workload, changes: Iterable[tuple[Names, Change]]) -> None:
    """Check that a basis with `applied_to: data` changes only the weight that multiplies the data.

    Args:
        workload: workload of the run.
        changes: a pair for each matrix of the basis. The first item has the names of the parameters that the
            matrix changes together. The second item is the form of the change.

    Raises:
        InputError: if the basis changes another parameter, if no weight multiplies the data directly, or if
            the data are streamed.
    """
    for names, change in changes:
        if change is not DATA:
            continue
        remedy = "set applied_to: parameters"
        if workload.linear_input is None:
            raise InputError(
                f"{workload.name}: applied_to = 'data', but no weight multiplies its data alone; {remedy}"
            )
        if workload.streamed:
            raise InputError(
                f"{workload.name}: applied_to = 'data', but its data are streamed and cannot be changed up "
                f"front; {remedy}"
            )
        weight, _ = workload.linear_input
        if names != (weight,):
            raise InputError(
                f"{workload.name}: applied_to = 'data', but its data enter {weight}, not {', '.join(names)}; "
                f"set blocks: [{weight}], or {remedy}"
            )


def with_changed_inputs(
    workload: Workload,
    problems: Sequence[Problem],
    matrices: Mapping[Names, np.ndarray],
    changes: Mapping[Names, Change],
) -> tuple[Workload, list[Problem], dict[Names, np.ndarray]]:
    """Apply a basis Q of the inputs to the data and the first weight (000 App. D, l. 1205-1209).

    The inputs x become Q^T x, and the first weight W becomes W Q. A run on the changed problem without a
    basis equals the run on the original problem in the basis I (x) Q of the weight, where (x) is the
    Kronecker product. The run without a basis does not have to change coordinates at each step.

    Args:
        workload: the original workload.
        problems: the original problem of each seed.
        matrices: matrices of the basis for all seeds, (S, n, r), by the names of the parameters that each
            matrix changes together.
        changes: form of the change of basis for each matrix, by the same names. Only matrices with the form
            DATA are applied to the data.

    Returns:
        The changed workload, whose data are no longer shared by seeds; the changed problem of each seed; and
        the matrices that were not applied to the data.

    Raises:
        InputError: in the cases in which `check_inputs` raises it.
    """
    check_inputs(workload, changes.items())
    remaining = {names: matrix for names, matrix in matrices.items() if changes.get(names) is not DATA}
    for names, matrix in matrices.items():
        if names in remaining:
            continue
        assert workload.linear_input is not None, "check_inputs asks for it"
        weight, field = workload.linear_input
        problems = [
            _changed(problem, weight, field, np.asarray(q, np.float64))
            for problem, q in zip(problems, matrix, strict=True)
        ]
        workload = replace(workload, shared_data=False)  # each seed has its own Q, and therefore its own data
    return workload, list(problems), remaining


def _changed(problem: Problem, weight: str, field: str, q: np.ndarray) -> Problem:
    """Multiply the parameter `weight` of a problem, and the array `field` of every split, by Q = `q`.

    Q multiplies from the right, because examples are rows.
    """
    return replace(
        problem,
        parameters={**problem.parameters, weight: problem.parameters[weight] @ q},
        splits={name: {**split, field: split[field] @ q} for name, split in problem.splits.items()},
    )
