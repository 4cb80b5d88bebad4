"""The first layer changed by its data: the same network on inputs Q^T x, whose weight is W Q."""

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
    """Check that where a basis changes the data, they enter linearly in the weight that it names.

    Raises:
        InputError: where they do not.
    """
    for names, change in changes:
        if change is not DATA:
            continue
        right = "set applied_to: parameters"
        if workload.linear_input is None:
            raise InputError(
                f"{workload.name}: applied_to = 'data', but no weight multiplies its data alone; {right}"
            )
        if workload.streamed:
            raise InputError(
                f"{workload.name}: applied_to = 'data', but its data are streamed and cannot be changed up "
                f"front; {right}"
            )
        weight, _ = workload.linear_input
        if names != (weight,):
            raise InputError(
                f"{workload.name}: applied_to = 'data', but its data enter {weight}, not {', '.join(names)}; "
                f"set blocks: [{weight}], or {right}"
            )


def with_changed_inputs(
    workload: Workload,
    problems: Sequence[Problem],
    matrices: Mapping[Names, np.ndarray],
    changes: Mapping[Names, Change],
) -> tuple[Workload, list[Problem], dict[Names, np.ndarray]]:
    """Data and first weights in a basis Q of the inputs (000 App. D, l. 1205-1209).

    W x = (W Q)(Q^T x): the inputs become Q^T x and the first weight W Q, so that a plain run is one in the
    basis I (x) Q of the weight, without a product for it in its steps.

    Args:
        workload, problems: as they are; a problem a seed.
        matrices: by group (S, n, r).
        changes: the form of each.

    Returns:
        Workload and problems with the data changed, a copy a seed, and the matrices that remain.

    Raises:
        InputError: where the data do not enter so.
    """
    check_inputs(workload, changes.items())
    kept = {names: matrix for names, matrix in matrices.items() if changes.get(names) is not DATA}
    for names, matrix in matrices.items():
        if names in kept:
            continue
        assert workload.linear_input is not None, "check_inputs asks for it"
        weight, field = workload.linear_input
        problems = [
            _changed(problem, weight, field, np.asarray(q, np.float64))
            for problem, q in zip(problems, matrix, strict=True)
        ]
        workload = replace(workload, shared_data=False)  # each seed has a Q of its own
    return workload, list(problems), kept


def _changed(problem: Problem, weight: str, field: str, q: np.ndarray) -> Problem:
    return replace(
        problem,
        parameters={**problem.parameters, weight: problem.parameters[weight] @ q},
        splits={name: {**split, field: split[field] @ q} for name, split in problem.splits.items()},
    )
