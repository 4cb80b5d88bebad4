"""Update rules as gradient transformations of Optax, which can be compiled, chained, masked and scheduled.

Optax calls `init` and `update` with a tree of arrays. A rule expects either one array per parameter or one
vector of all parameters. `_BoundRule` converts between the tree and the arrays of the rule. A `_BoundRule` is
derived from the parameters again at every call, which costs nothing inside compiled code. Amortized work is
an expensive computation of a rule that only some steps do, such as an eigendecomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from curvebench.arrays.jax_ops import jax_ops
from curvebench.arrays.ops import Array, Ops
from curvebench.interop import as_input_errors, check_array, check_kind, chosen, completed, refuse_needs
from curvebench.optimizers import Rule
from curvebench.optimizers.options import Options
from curvebench.spec.errors import InputError
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update, Work, updated

Arrays = Sequence[Array]


class RuleState(NamedTuple):
    count: Array  # number of updates so far, an int32 scalar
    # State of the rule: a tree like the tree of the parameters, with a state in place of each parameter.
    # If the rule updates all parameters as one vector, the field is the state of the vector.
    rule: Any


def as_optax(rule: str | Rule, options: Options | None = None, kinds: Any = None, **hyper: Any) -> Any:
    """Return an update rule as an `optax.GradientTransformation`.

    The updates already include the learning rate, and are added to the parameters. Therefore the
    transformation must be the last of a chain. The parameters are any tree of arrays in float32 or float64.
    Weights have the shape (outputs, inputs).

    A hyperparameter is a number, an array, or a schedule, which is a function of the number of updates so
    far. For `optax.inject_hyperparams`, write a function that takes the hyperparameters by name and calls
    `as_optax`.

    Args:
        rule: name of a registered rule, or a rule.
        options: a mapping from options of the rule to values. Omitted options have their defaults.
        kinds: kind of each parameter in the model: `weight`, `bias`, `convolution`, `norm`, `embedding`,
            `head` or `vector`. Give a tree with the structure of the parameters, or a function of a path such
            as `layers/0/w`. If the kind of a parameter is None, its number of axes decides. Rules that use
            layers, such as SymO, assume that the weights in the tree are in the order of the layers, and
            require the kind of each bias.
        hyper: hyperparameters by full name. Hyperparameters with a default may be omitted.

    Returns:
        The transformation. The function `update` of the transformation requires the parameters as the third
        argument.

    Raises:
        ImportError: when Optax is not installed.
        InputError: when the rule needs the Hessian, or the gradient at another point than the parameters; or
            when a name is unknown or a value wrong. `init` and `update` raise an InputError, too, for
            parameters that the rule cannot update.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from curvebench import as_optax
        >>> optimizer = as_optax("sgd", learning_rate=optax.linear_schedule(0.5, 0.0, 10))
        >>> params = {"x": jnp.array([1.0, 2.0])}
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update({"x": jnp.array([1.0, -1.0])}, state, params)
        >>> optax.apply_updates(params, updates)["x"].tolist()
        [0.5, 2.5]
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError("as_optax needs Optax, which is not installed: pip install optax") from error
    rule = chosen(rule, options)
    _refuse(rule)
    numbers = _checked(rule, hyper)

    def init(params: Any) -> RuleState:
        bound = _bound(rule, kinds, params)
        states = [leaf.init(array) for leaf, array in zip(bound.leaves, bound.arrays(params), strict=True)]
        return RuleState(jnp.zeros((), jnp.int32), bound.tree_of_states(states))

    def update(grads: Any, state: RuleState, params: Any = None) -> tuple[Any, RuleState]:
        if params is None:
            raise InputError(f"{rule.name} needs the parameters: update(gradients, state, parameters)")
        bound = _bound(rule, kinds, params)
        values = {name: value(state.count) if callable(value) else value for name, value in numbers.items()}
        values |= {"schedule": 1.0, "step": state.count + 1}
        arrays = (bound.arrays(grads), bound.states(state.rule), bound.arrays(params))
        changes, states = bound.updates(*arrays, values)
        count = optax.safe_increment(state.count)
        return bound.tree_of_arrays(changes), RuleState(count, bound.tree_of_states(states))

    return optax.GradientTransformation(init, update)


def _refuse(rule: Rule) -> None:
    """Check that a rule uses only the gradient at the parameters, since Optax provides nothing else.

    Raises:
        InputError: when the rule uses other values of the loss, or the gradient at another point.
    """
    refuse_needs(rule, "a transformation of Optax")
    if rule.gradient_at is not None:
        raise InputError(
            f"{rule.name} takes its gradient at another point than the parameters, and a transformation of "
            "Optax receives the gradient at the parameters; run it in a study, or as_torch with a closure"
        )


def _checked(rule: Rule, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Check the given hyperparameters, and add default values of the other hyperparameters.

    Schedules and traced values are not checked, since their values are not known yet. An array with the value
    0 is not checked either, since it may be the last value of a schedule.

    Raises:
        InputError: when a name is unknown, or a value is missing or wrong.
    """
    numbers: dict[str, Any] = {}
    later: list[str] = []
    for name, value in hyper.items():
        is_array = isinstance(value, (np.generic, np.ndarray, jax.Array)) and value.ndim == 0
        if callable(value) or isinstance(value, jax.core.Tracer) or (is_array and value == 0):
            later.append(name)
        numbers[name] = value.item() if is_array and name not in later else value
    return {**completed(rule, numbers, later), **hyper}


@dataclass(frozen=True)
class _Leaf:
    """An array that one call of the rule updates: a parameter, or all parameters as one vector.

    Args:
        update: the rule, bound to the layout of the array.
        ops: array functions in the precision of the array.
    """

    update: Update
    ops: Ops

    def init(self, array: Array) -> Any:
        """Return the initial state of the rule for `array`, without the axis of lanes."""
        state = self.update.groups[0].rule.init(self.ops, self._as_lane(array))
        return jax.tree.map(lambda value: value[0], state)

    def update_of(
        self, grad: Array, state: Any, param: Array, values: Mapping[str, Any], work: Work
    ) -> tuple[Array, Any]:
        """Return the update, which is to be added to the parameter, and the new state.

        Args:
            grad, state, param: gradient, state and value of the array.
            values: hyperparameters, number of the step (`step`), and multiplier of the learning rate
                (`schedule`), each a number or a scalar array.
            work: amortized work of the step.
        """
        dtype = jnp.dtype(self.ops.dtype)
        numbers = {name: jnp.reshape(jnp.asarray(value, dtype), (1,)) for name, value in values.items()}
        state = jax.tree.map(lambda value: value[None], state)
        group, grad_lane, param_lane = self.update.groups[0], self._as_lane(grad), self._as_lane(param)
        new, state = updated(self.ops, group.part, grad_lane, state, param_lane, numbers, work)
        flat = new if group.named is None else group.flatten(self.ops, new, (1,))
        return flat[0] - param, jax.tree.map(lambda value: value[0], state)

    def _as_lane(self, array: Array) -> Any:
        """Add a leading axis of length 1 to an array, because rules expect an axis of lanes (runs).

        If the rule receives all parameters as a mapping, the result is a mapping from their names to arrays.
        """
        group = self.update.groups[0]
        return array[None] if group.named is None else group.take(self.ops, array[None])


@dataclass(frozen=True)
class _BoundRule:
    """A rule bound to a tree of parameters. It converts between the tree and the arrays of the rule.

    Args:
        structure: structure of the tree.
        paths: paths of the parameters, such as `layers/0/w`, in the order of the tree.
        dtypes: precisions of the parameters, in the order of `paths`.
        whole: the rule, bound to the layout of all parameters. The name of a parameter is its index in
            `paths`.
        leaves: the arrays that the rule updates: one for each parameter, or one for the vector of all
            parameters.
    """

    structure: Any
    paths: Sequence[str]
    dtypes: Sequence[Any]
    whole: Update
    leaves: Sequence[_Leaf]

    @property
    def as_one(self) -> bool:
        """Whether the rule updates all parameters as one vector."""
        return self.whole.rule.sees_model and bool(self.paths)

    def arrays(self, tree: Any) -> Arrays:
        """Return the arrays of a tree of parameters or gradients, one for each item of `leaves`.

        Raises:
            InputError: when a gradient is missing or has another shape than its parameter.
        """
        arrays = self.structure.flatten_up_to(tree)
        shapes = self.whole.layout.shapes
        for number, (path, array) in enumerate(zip(self.paths, arrays, strict=True)):
            shape = shapes[str(number)]
            if array is None or jnp.shape(array) != shape:
                gradient = "no gradient" if array is None else f"a gradient of shape {jnp.shape(array)}"
                raise InputError(f"the parameter {path!r} of shape {shape} has {gradient}")
        if not self.as_one:
            return [jnp.asarray(array, dtype) for array, dtype in zip(arrays, self.dtypes, strict=True)]
        ops = self.leaves[0].ops
        named = {str(number): jnp.asarray(array, ops.dtype) for number, array in enumerate(arrays)}
        return [self.whole.layout.flatten(ops, named, 0)]

    def tree_of_arrays(self, arrays: Arrays) -> Any:
        """Return the tree that consists of the given arrays. This is the inverse of the method `arrays`."""
        if self.as_one:
            named = self.whole.layout.unflatten(self.leaves[0].ops, arrays[0])
            arrays = [named[str(number)].astype(dtype) for number, dtype in enumerate(self.dtypes)]
        return self.structure.unflatten(arrays)

    def states(self, tree: Any) -> Sequence[Any]:
        """Return the states that a tree like `RuleState.rule` contains, one for each item of `leaves`."""
        return [tree] if self.as_one else self.structure.flatten_up_to(tree)

    def tree_of_states(self, states: Sequence[Any]) -> Any:
        """Return the given states as a tree like `RuleState.rule`: the inverse of the method `states`."""
        return states[0] if self.as_one else self.structure.unflatten(states)

    def updates(
        self, grads: Arrays, states: Sequence[Any], params: Arrays, values: Mapping[str, Any]
    ) -> tuple[Arrays, Sequence[Any]]:
        """Do the amortized work of a step, and return the update and the new state of each item of `leaves`.

        The number of the step is a traced value. Compiled code therefore contains a branch for each
        combination of amortized work, and selects a branch when it is executed.

        Args:
            grads, states, params: gradients, states and parameters, one for each item of `leaves`.
            values: hyperparameters, number of the step (`step`), and multiplier of the learning rate
                (`schedule`).
        """

        def branch(work: Work, grads: Arrays, states: Sequence[Any], params: Arrays) -> Any:
            leaves = zip(self.leaves, grads, states, params, strict=True)
            pairs = [leaf.update_of(grad, state, param, values, work) for leaf, grad, state, param in leaves]
            return [update for update, _ in pairs], [state for _, state in pairs]

        every = self.whole.rule.refresh_every or 1
        # Amortized work of step 1, and of each step of the refresh period after step 1.
        # The work of step 1 may differ from the work of all later steps.
        # Later refresh periods repeat the period after step 1.
        works = [self.whole.work_of(step) for step in range(1, every + 2)]
        distinct = sorted(set(works))
        with jax.default_matmul_precision("highest"):
            if len(distinct) == 1:
                return branch(distinct[0], grads, states, params)
            index = jnp.where(values["step"] == 1, 0, 1 + (values["step"] - 2) % every)
            selected = jnp.asarray([distinct.index(work) for work in works])[index]
            branches = [partial(branch, work) for work in distinct]
            return jax.lax.switch(selected, branches, grads, states, params)


def _bound(rule: Rule, kinds: Any, params: Any) -> _BoundRule:
    """Bind a rule to a tree of parameters.

    Args:
        rule: the rule.
        kinds: kind of each parameter, as a tree or as a function of the parameter's path; None if no kind is
            given.
        params: the parameters.

    Raises:
        InputError: when the rule cannot update a parameter, or the kind of a parameter is missing or unknown.
    """
    leaves_with_paths, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = [_text(path) for path, _ in leaves_with_paths]
    dtypes = [jnp.result_type(array) for _, array in leaves_with_paths]
    shapes = {str(number): tuple(jnp.shape(array)) for number, (_, array) in enumerate(leaves_with_paths)}
    for path, shape, dtype in zip(paths, shapes.values(), dtypes, strict=True):
        remedy = "cast it, or leave it out by optax.masked"
        check_array(f"the parameter {path!r}", shape, jnp.dtype(dtype).name, remedy)
    kind_of = _kinds(kinds)
    kinds_by_number = {name: kind_of(path) for name, path in zip(shapes, paths, strict=True)}
    for kind, path in zip(kinds_by_number.values(), paths, strict=True):
        check_kind(f"the parameter {path!r}", kind)
    roles = roles_of(shapes, {name: kind for name, kind in kinds_by_number.items() if kind is not None})
    whole = Update(rule, layout(shapes, roles))
    if paths:
        with as_input_errors():
            assert whole.groups  # forming the groups raises an error for unsupported parameters
            rule.check_dtype(jnp.result_type(*dtypes).name)
    if rule.sees_model:
        leaves = [_Leaf(whole, jax_ops(jnp.result_type(*dtypes).name))] if paths else []
    else:
        single = (Update(rule, layout({name: shapes[name]}, {name: roles[name]})) for name in shapes)
        leaves = [_Leaf(update, jax_ops(dtype.name)) for update, dtype in zip(single, dtypes, strict=True)]
    for leaf in leaves:
        _refuse(leaf.update.groups[0].rule)
    return _BoundRule(structure, paths, dtypes, whole, leaves)


def _text(path: Any) -> str:
    """Return the path of a leaf of a tree as text, such as `layers/0/w`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _kinds(kinds: Any) -> Callable[[str], Any]:
    """Return the argument `kinds` of `as_optax` as a function of a parameter's path."""
    if kinds is None:
        return lambda path: None
    if callable(kinds) and jax.tree_util.all_leaves([kinds]):
        return kinds
    # Look up kinds by path, because `optax.masked` changes the structure of the tree of parameters.
    entries, _ = jax.tree_util.tree_flatten_with_path(kinds, is_leaf=lambda kind: kind is None)
    by_path = {_text(path): kind for path, kind in entries}

    def kind_of(path: str) -> Any:
        if path not in by_path:
            raise InputError(f"kinds has none for the parameter {path!r} (it has: {', '.join(by_path)})")
        return by_path[path]

    return kind_of
