"""Loading of a bundle: its program is built, and its arrays are copied to the device.

A bundle is a set of runs that are computed together; a run of a bundle is called a lane. If lanes are padded
to a tile (`engine.tiles`), a slot of the tile contains lanes of one seed; without a tile, there is one slot
per seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from curvebench.engine.bundle import Bundle, check_accumulation
from curvebench.engine.clock import Clock
from curvebench.engine.memory import arrays_of, is_resident
from curvebench.engine.programs import Programs, shapes_of
from curvebench.optimizers.rule import Rule
from curvebench.optimizers.state_precision import with_parameters_in_half
from curvebench.precision import Policy
from curvebench.steps.derivatives import StepEvaluation
from curvebench.steps.engine import Engine
from curvebench.steps.program import Constants, Loaded, Program
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import Update
from curvebench.workloads.workload import MINIBATCH_LOSS, Split


def stacked(
    bundle: Bundle, split: str, examples: Callable[[Split], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the examples of a split: for each field of the data, an array with the examples of all seeds.

    The arrays have a leading axis of slots, unless all seeds share the data.

    Args:
        bundle: the bundle, whose tile decides the number of slots.
        split: name of the split.
        examples: function that returns the selected examples of a seed's split.
    """
    if bundle.workload.shared_data:
        return examples(bundle.problems[0].splits[split])
    by_seed = [examples(problem.splits[split]) for problem in bundle.problems]
    slots = bundle.placement.seeds
    return {name: np.stack([by_seed[seed][name] for seed in slots]) for name in by_seed[0]}


def cast_rule(rule: Rule, policy: Policy) -> Rule:
    """Return a rule that updates parameters in the precision in which they are stored.

    If the policy computes in a higher precision, the returned rule rounds new parameters to the precision of
    stored parameters. An optimizer of PyTorch is returned unchanged.

    Args:
        rule: the rule.
        policy: the precisions in which parameters are stored and in which rules compute.

    Raises:
        OptionError: if the rule does not support the precision of parameters.
    """
    rule.check_dtype(policy.parameters)
    as_computed = policy.parameters == policy.computed or isinstance(rule, TorchRule)
    return rule if as_computed else with_parameters_in_half(rule)


def program_of(bundle: Bundle, engine: Engine) -> Program:
    """Return the functions of a bundle's steps.

    The functions contain no arrays, so that several bundles can share them.

    Raises:
        OptionError: if the rule does not support the precision of parameters, if gradients are accumulated
            and a need of the rule is not the mean over microbatches, or if the rule compares losses of
            different minibatches.
    """
    workload, lay = bundle.workload, bundle.layout
    check_accumulation(bundle.rule.name, bundle.needs, bundle.protocol)
    bundle.rule.check_loss(bundle.orders is None and workload.noise is None)
    per_seed = bundle.orders is not None or not workload.shared_data
    return Program(
        ops=engine.ops,
        update=Update(cast_rule(bundle.rule, engine.policy), lay),
        evaluation=StepEvaluation(engine, workload.loss, per_seed, workload.likelihood, lay, bundle.needs),
        parameter_dtype=engine.policy.parameters,
        protocol=bundle.protocol,
        accumulate=engine.accumulate,
        averages_losses=MINIBATCH_LOSS in workload.metrics,
    )


def load(
    bundle: Bundle, engine: Engine, clock: Clock | None = None, programs: Programs | None = None
) -> Loaded:
    """Build the program of a bundle, and copy its arrays to the device. Call it in the engine's context.

    Args:
        bundle: the bundle.
        engine: the backend.
        clock: clock to which seconds are added. Copying counts as `data`. The computation of the initial
            state counts as `compile`, because it consists mostly of tracing and compilation.
        programs: compiled programs that the bundle shares with other bundles, such as other rounds of a
            method on a workload; None to compile for this bundle only.

    Raises:
        OptionError: if the rule does not support the precision of parameters, if gradients are accumulated
            and a need of the rule is not the mean over microbatches, or if the rule compares losses of
            different minibatches.
    """
    ops, workload, problems = engine.ops, bundle.workload, bundle.problems
    programs = programs or Programs()
    program = programs.get("program", partial(program_of, bundle, engine))
    slots, width = bundle.shape
    shares_rows = workload.shared_data or bundle.orders is None

    def lanes(values: Sequence[np.ndarray]) -> Any:
        stacked = bundle.by_slot(np.stack(values))[:, None]
        return ops.asarray(np.repeat(stacked, width, axis=1))

    def hyperparameter(values: np.ndarray) -> Any:
        settings = np.arange(width)[None] if bundle.tile is None else bundle.placement.settings
        return ops.asarray(np.asarray(values, np.float64)[settings][..., None])

    clock = clock or Clock()
    with clock.phase("data"):
        splits = {
            split: {name: ops.asarray(array) for name, array in stacked(bundle, split, arrays_of).items()}
            for split in problems[0].splits
            if is_resident(workload, split)
        }
        constants = Constants(
            data={} if workload.streamed else splits["train"],
            rows=None if shares_rows else ops.asarray(np.arange(slots)[:, None]),
            matrices=tuple(ops.bases(bundle.by_slot(matrix)) for matrix in bundle.matrices.values()),
            hyper={name: hyperparameter(values) for name, values in bundle.hyperparameters.items()},
        )
        params = {name: lanes([p.parameters[name] for p in problems]) for name in bundle.layout.parameters}
        model = {name: lanes([p.state[name] for p in problems]) for name in problems[0].state}
    with clock.phase("compile"):
        args = (params, model, constants)
        key = ("start", shapes_of(engine, args))
        carry = programs.get(key, lambda: engine.compiled(program.start, *args, multiplications=0))(*args)
    return Loaded(program, carry, constants, splits)
