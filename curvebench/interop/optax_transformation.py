"""Update rules as gradient transformations of Optax: compiled, chained, masked and scheduled."""

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
    count: Array  # updates so far, int32 ()
    rule: Any  # the rule's state of each parameter, in a tree like them; one where it sees the whole model


def as_optax(rule: str | Rule, options: Options | None = None, kinds: Any = None, **hyper: Any) -> Any:
    """An update rule as an `optax.GradientTransformation`.

    Its updates are what is added to the parameters: it contains the learning rate and is the last of a chain.
    Parameters are any tree of arrays in float32 or float64, and weights have the shape (outputs, inputs).

    A hyperparameter is a number, an array, or a schedule: a function of the number of updates so far. For
    `optax.inject_hyperparams`, write a function that takes the hyperparameters by name and calls this one.

    Args:
        rule: a registered name, or a rule.
        options: the rule's options by name; what is left out has its default.
        kinds: what each parameter is inside the model: `weight`, `bias`, `convolution`, `norm`, `embedding`,
            `head` or `vector`. A tree like the parameters, or a function of a path such as `layers/0/w`.
            Where it is or gives None, the number of axes says it. A rule that sees layers, such as symo,
            takes the order of weights in the tree for that of the layers, and needs the kind of each bias.
        hyper: hyperparameters by full name; what has a default may be left out.

    Returns:
        The transformation. `update` takes gradients, state and parameters, all three.

    Raises:
        ImportError: where Optax is not installed.
        InputError: for a rule that needs the Hessian, or its gradient elsewhere than at the parameters; for
            an unknown name or a wrong value; from `init` and `update`, for what rules cannot update.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError("as_optax needs Optax, which is not installed: pip install optax") from error
    rule = chosen(rule, options)
    _refuse(rule)
    given = _checked(rule, hyper)

    def init(params: Any) -> RuleState:
        seen = _seen(rule, kinds, params)
        states = [leaf.init(array) for leaf, array in zip(seen.leaves, seen.arrays(params), strict=True)]
        return RuleState(jnp.zeros((), jnp.int32), seen.tree_of_states(states))

    def update(grads: Any, state: RuleState, params: Any = None) -> tuple[Any, RuleState]:
        if params is None:
            raise InputError(f"{rule.name} needs the parameters: update(gradients, state, parameters)")
        seen = _seen(rule, kinds, params)
        values = {name: value(state.count) if callable(value) else value for name, value in given.items()}
        values |= {"schedule": 1.0, "step": state.count + 1}
        arrays = (seen.arrays(grads), seen.states(state.rule), seen.arrays(params))
        changes, states = seen.moved(*arrays, values)
        count = optax.safe_increment(state.count)
        return seen.tree_of_arrays(changes), RuleState(count, seen.tree_of_states(states))

    return optax.GradientTransformation(init, update)


def _refuse(rule: Rule) -> None:
    refuse_needs(rule, "a transformation of Optax")
    if rule.gradient_at is not None:
        raise InputError(
            f"{rule.name} takes its gradient elsewhere than at the parameters, and a transformation of Optax "
            "is given the gradient there; run it in a study, or as_torch with a closure"
        )


def _checked(rule: Rule, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters completed; schedules and traced values as they are.

    Raises:
        InputError: for an unknown name or a wrong value.
    """
    numbers: dict[str, Any] = {}
    later: list[str] = []
    for name, value in hyper.items():
        array = isinstance(value, (np.generic, np.ndarray, jax.Array)) and value.ndim == 0
        # An array may come from a schedule, which may come down to 0.
        if callable(value) or isinstance(value, jax.core.Tracer) or (array and value == 0):
            later.append(name)
        numbers[name] = value.item() if array and name not in later else value
    return {**completed(rule, numbers, later), **hyper}


@dataclass(frozen=True)
class _Leaf:
    """An array that the rule updates: a parameter, or all of them as one vector."""

    update: Update
    ops: Ops

    def init(self, array: Array) -> Any:
        """The state at the first parameters, without an axis of leaves."""
        return jax.tree.map(
            lambda value: value[0], self.update.groups[0].rule.init(self.ops, self._seen(array))
        )

    def moved(
        self, grad: Array, state: Any, param: Array, values: Mapping[str, Any], work: Work
    ) -> tuple[Array, Any]:
        """The change of the parameter, and the new state."""
        kind = jnp.dtype(self.ops.dtype)
        numbers = {name: jnp.reshape(jnp.asarray(value, kind), (1,)) for name, value in values.items()}
        state = jax.tree.map(lambda value: value[None], state)
        group = self.update.groups[0]
        new, state = updated(self.ops, group.part, self._seen(grad), state, self._seen(param), numbers, work)
        flat = new if group.named is None else group.flatten(self.ops, new, (1,))
        return flat[0] - param, jax.tree.map(lambda value: value[0], state)

    def _seen(self, array: Array) -> Any:
        """The array as the rule's only lane, by name where it is all parameters that the rule takes so."""
        group = self.update.groups[0]
        return array[None] if group.named is None else group.take(self.ops, array[None])


@dataclass(frozen=True)
class _Seen:
    """How the rule sees a tree of parameters.

    Args:
        structure: of the tree.
        paths: of its arrays, in its order.
        dtypes: of its arrays.
        whole: the rule bound to all of them.
        leaves: what the rule updates.
    """

    structure: Any
    paths: Sequence[str]
    dtypes: Sequence[Any]
    whole: Update
    leaves: Sequence[_Leaf]

    @property
    def as_one(self) -> bool:
        """Whether the rule sees all parameters together."""
        return self.whole.rule.sees_model and bool(self.paths)

    def arrays(self, tree: Any) -> Arrays:
        """The arrays, or the one vector, of a tree of parameters or gradients."""
        arrays = self.structure.flatten_up_to(tree)
        shapes = self.whole.layout.shapes
        for number, (path, array) in enumerate(zip(self.paths, arrays, strict=True)):
            shape = shapes[str(number)]
            if array is None or jnp.shape(array) != shape:
                found = "no gradient" if array is None else f"a gradient of shape {jnp.shape(array)}"
                raise InputError(f"the parameter {path!r} of shape {shape} has {found}")
        if not self.as_one:
            return [jnp.asarray(array, dtype) for array, dtype in zip(arrays, self.dtypes, strict=True)]
        ops = self.leaves[0].ops
        named = {str(number): jnp.asarray(array, ops.dtype) for number, array in enumerate(arrays)}
        return [self.whole.layout.flatten(ops, named, 0)]

    def tree_of_arrays(self, arrays: Arrays) -> Any:
        """The inverse of `arrays`."""
        if self.as_one:
            named = self.whole.layout.unflatten(self.leaves[0].ops, arrays[0])
            arrays = [named[str(number)].astype(dtype) for number, dtype in enumerate(self.dtypes)]
        return self.structure.unflatten(arrays)

    def states(self, tree: Any) -> Sequence[Any]:
        """The state of each leaf."""
        return [tree] if self.as_one else self.structure.flatten_up_to(tree)

    def tree_of_states(self, states: Sequence[Any]) -> Any:
        """The inverse of `states`."""
        return states[0] if self.as_one else self.structure.unflatten(states)

    def moved(
        self, grads: Arrays, states: Sequence[Any], params: Arrays, values: Mapping[str, Any]
    ) -> tuple[Arrays, Sequence[Any]]:
        """The changes of all leaves and their new states, with the amortized work of this step."""

        def moves(work: Work, grads: Arrays, states: Sequence[Any], params: Arrays) -> Any:
            leaves = zip(self.leaves, grads, states, params, strict=True)
            pairs = [leaf.moved(grad, state, param, values, work) for leaf, grad, state, param in leaves]
            return [change for change, _ in pairs], [state for _, state in pairs]

        every = self.whole.rule.refresh_every or 1
        works = [self.whole.work_of(step) for step in range(1, every + 2)]  # then again from the second on
        distinct = sorted(set(works))
        with jax.default_matmul_precision("highest"):
            if len(distinct) == 1:
                return moves(distinct[0], grads, states, params)
            place = jnp.where(values["step"] == 1, 0, 1 + (values["step"] - 2) % every)
            which = jnp.asarray([distinct.index(work) for work in works])[place]
            return jax.lax.switch(which, [partial(moves, work) for work in distinct], grads, states, params)


def _seen(rule: Rule, kinds: Any, params: Any) -> _Seen:
    """How a rule sees parameters, which are checked.

    Raises:
        InputError: for a parameter that rules cannot update, or one whose kind is missing or unknown.
    """
    found, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = [_text(path) for path, _ in found]
    dtypes = [jnp.result_type(array) for _, array in found]
    shapes = {str(number): tuple(jnp.shape(array)) for number, (_, array) in enumerate(found)}
    for path, shape, dtype in zip(paths, shapes.values(), dtypes, strict=True):
        remedy = "cast it, or leave it out by optax.masked"
        check_array(f"the parameter {path!r}", shape, jnp.dtype(dtype).name, remedy)
    kind_of = _kinds(kinds)
    given = {name: kind_of(path) for name, path in zip(shapes, paths, strict=True)}
    for kind, path in zip(given.values(), paths, strict=True):
        check_kind(f"the parameter {path!r}", kind)
    roles = roles_of(shapes, {name: kind for name, kind in given.items() if kind is not None})
    whole = Update(rule, layout(shapes, roles))
    if found:
        with as_input_errors():
            assert whole.groups  # they may be none that the rule takes
            rule.check_dtype(jnp.result_type(*dtypes).name)
    if rule.sees_model:
        leaves = [_Leaf(whole, jax_ops(jnp.result_type(*dtypes).name))] if found else []
    else:
        alone = (Update(rule, layout({name: shapes[name]}, {name: roles[name]})) for name in shapes)
        leaves = [_Leaf(update, jax_ops(dtype.name)) for update, dtype in zip(alone, dtypes, strict=True)]
    for leaf in leaves:
        _refuse(leaf.update.groups[0].rule)
    return _Seen(structure, paths, dtypes, whole, leaves)


def _text(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _kinds(kinds: Any) -> Callable[[str], Any]:
    """Kinds as a function of a parameter's path."""
    if kinds is None:
        return lambda path: None
    if callable(kinds) and jax.tree_util.all_leaves([kinds]):
        return kinds
    # By path and not by structure: where parameters are masked, theirs differs.
    found, _ = jax.tree_util.tree_flatten_with_path(kinds, is_leaf=lambda kind: kind is None)
    known = {_text(path): kind for path, kind in found}

    def kind_of(path: str) -> Any:
        if path not in known:
            raise InputError(f"kinds has none for the parameter {path!r} (it has: {', '.join(known)})")
        return known[path]

    return kind_of
