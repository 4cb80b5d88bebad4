"""Models of JAX as workloads: functions `init` and `loss`, or a module of Flax, Equinox or Haiku with a loss.

A model is one of: a function with the argument `key` that returns nested arrays, such as `init(key)`; a class
of modules of Flax (Linen or NNX), Equinox or Haiku; or a function that returns such a module. The loss takes
the parameters or the module, and a minibatch: `loss(params, batch)`. If a loss or a metric has an argument
with one of the following names, it also receives:

- `key`, a random key, which differs from step to step. In evaluation, the key is always the same, and it is
not passed if the argument has a default, so that `key=None` can mean no dropout.
- `training`, which is true in steps and false in evaluation.
- `state`, arrays that are not trained, such as running means. `init` must then return (params, state), and
the loss (number, new state). For the state of modules of Flax and Haiku, no argument is needed.

Update rules take weights as matrices (outputs, inputs), but libraries store weights with other orders of
axes. Therefore the operations of the loss that use a parameter decide which axes of the parameter are
outputs, and which kind (such as weight, bias or embedding) the parameter is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxprs_in_params
from jax.interpreters import partial_eval

from curvebench.backends.jax_engine import has_convolution
from curvebench.interop.models import (
    SEEDS,
    Functions,
    Initial,
    ModelFile,
    UserModel,
    attributed,
    global_seed,
    parameters_of,
    require_metrics,
    require_number,
)
from curvebench.spec.errors import InputError

GIVEN = ("key", "state", "training")  # arguments that a loss or a metric may have besides model and batch
NOT_SETTINGS = ("key", "rngs", "parent", "name")  # arguments of constructors that are no settings

# Kind of a parameter with two or more axes, by the operation that uses the parameter.
# If several of these operations use the parameter, the first of them in this mapping decides.
KINDS_BY_OPERATION = {
    "gather": "embedding",
    "dynamic_slice": "embedding",
    "conv_general_dilated": "convolution",
    "dot_general": "weight",
    "add": "embedding",  # for example, embeddings of positions are added to tokens
}
KINDS_OF_VECTORS = {"add": "bias", "sub": "bias", "mul": "norm", "div": "norm"}
# Operations whose result is their argument in another form. A parameter is traced through them.
FORMS = ("convert_element_type", "copy", "transpose", "reshape", "broadcast_in_dim", "squeeze", "slice")
AXES_KEPT = FORMS[:3]


class PureModel(NamedTuple):
    """A model as pure functions of nested arrays.

    The argument `function` is a loss or metrics. It is called as `function(network, batch, state) -> (result,
    new state)`, where `network` is the module or the nested parameters.

    Args:
        create: `create(function, batch, key) -> (params, state)`.
        call: `call(function, params, state, batch, key, training) -> (result, new state)`.
    """

    create: Callable[..., tuple[Any, Any]]
    call: Callable[..., tuple[Any, Any]]


def constructor(file: ModelFile, name: str) -> tuple[Callable[..., Any], Collection[str]]:
    """Return the constructor of a model, and the names of its arguments that a study does not set.

    The constructor is a class of modules, or a function that returns a module or nested arrays; by default
    the function `init` of the file.
    """
    made = file.named(name or "init", "model" if name else "function")
    if not callable(made):
        raise InputError(f"{file.path}: {name or 'init'} is neither a class of modules nor a function")
    if not name and "key" not in (arguments := parameters_of(made)):
        raise InputError(f"{file.path}: init: takes {', '.join(arguments)}; name its random key `key`")
    return made, NOT_SETTINGS


def flatten(data: Any) -> tuple[list[Any], Any]:
    """Return the leaves of nested data, and the structure of the nesting."""
    return jax.tree.flatten(data)


@contextmanager
def _context() -> Iterator[None]:
    """Return a context in which models are constructed: on the CPU, and without 64-bit numbers.

    Models are then equal, whatever the precision and device of a run.
    """
    with jax.enable_x64(False), jax.default_device(jax.devices("cpu")[0]):
        yield


def _key(words: Any) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32), impl="threefry2x32")


def _key_of(seed: int) -> Any:
    return _key(np.array([seed >> 32, seed % 2**32], np.uint32))


def _constructed(model: UserModel, key: Any) -> Any:
    made, _ = constructor(model.file, model.name)
    names = parameters_of(made)
    given = {"key": key} if "key" in names else {}
    if "rngs" in names:
        given["rngs"] = import_module("flax.nnx").Rngs(key)
    with attributed(model.name or "init", model.file.path):
        return made(**model.arguments, **given)


def _nested(library: Any, model: UserModel, takes_state: bool) -> PureModel:
    """Return a model whose constructor returns nested parameters or, if `takes_state`, (params, state)."""

    def create(function: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        made = _constructed(model, key)
        if takes_state and not (isinstance(made, tuple) and len(made) == 2):
            where = f"{model.file.path}: {model.name or 'init'}"
            returned = type(made).__name__
            raise InputError(
                f"{where}: returns {returned}; return (params, state), since the loss takes state"
            )
        return made if takes_state else (made, {})

    def call(function: Any, params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, Any]:
        return function(params, batch, state)

    return PureModel(create, call)


def _linen(linen: Any, model: UserModel, takes_state: bool) -> PureModel:
    module = _constructed(model, None)

    def create(function: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        variables = linen.init(lambda bound: function(bound, batch, {}), module)({"params": key})
        return variables.pop("params", {}), variables

    def call(function: Any, params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, Any]:
        # Streams of random numbers without a key of their own, such as `dropout`, use the key of `params`.
        applied = linen.apply(lambda bound: function(bound, batch, {})[0], module, mutable=[*state])
        result, new = applied({"params": params, **state}, rngs={"params": key})
        return result, {**state, **new}

    return PureModel(create, call)


def _nnx(nnx: Any, model: UserModel, takes_state: bool) -> PureModel:
    def split(module: Any) -> Any:
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    graph, _, random, _ = split(_constructed(model, _key_of(0)))
    random_leaves, random_structure = jax.tree.flatten(random)

    def create(function: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        _, params, _, state = split(_constructed(model, key))
        return params, state

    def call(function: Any, params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, Any]:
        keys = [
            jax.random.split(jax.random.fold_in(key, number), leaf.shape)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
            for number, leaf in enumerate(random_leaves)
        ]
        module = nnx.merge(graph, params, jax.tree.unflatten(random_structure, keys), state)
        (module.train if training else module.eval)()
        result, _ = function(module, batch, {})
        return result, split(module)[3]

    return PureModel(create, call)


def _equinox(equinox: Any, model: UserModel, takes_state: bool) -> PureModel:
    def parts(key: Any) -> tuple[Any, Any, Any, Any]:
        made = _constructed(model, key)
        if takes_state and not isinstance(made, tuple):
            made = equinox.nn.make_with_state(lambda: _constructed(model, key))()
        network, state = made if takes_state else (made, {})
        params, others = equinox.partition(network, equinox.is_inexact_array)
        return params, *equinox.partition(others, equinox.is_array), state

    _, _, static, _ = parts(_key_of(0))

    def create(function: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        params, arrays, _, state = parts(key)
        return params, (arrays, state)

    def call(function: Any, params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, Any]:
        network = equinox.nn.inference_mode(equinox.combine(params, state[0], static), not training)
        result, new = function(network, batch, state[1])
        return result, (state[0], new)

    return PureModel(create, call)


def _haiku(haiku: Any, model: UserModel, takes_state: bool) -> PureModel:
    def transformed(function: Any, batch: Any) -> Any:
        return haiku.transform_with_state(lambda: function(_constructed(model, None), batch, {})[0])

    def create(function: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return transformed(function, batch).init(key)

    def call(function: Any, params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, Any]:
        return transformed(function, batch).apply(params, state, key)

    return PureModel(create, call)


ADAPTERS = {"flax.linen": _linen, "flax.nnx": _nnx, "equinox": _equinox, "haiku": _haiku}


def _pure(model: UserModel, takes_state: bool) -> PureModel:
    """Return a model as pure functions, made by the adapter of the library that defines the model's class."""
    made, _ = constructor(model.file, model.name)
    if not isinstance(made, type):
        made = _constructed(model, _key_of(0))
        made = type(made[0] if isinstance(made, tuple) and made else made)
    modules = [base.__module__ for base in made.__mro__]
    library = next((name for module in modules for name in ADAPTERS if module.startswith(f"{name}.")), None)
    if library is None:
        return _nested(None, model, takes_state)
    return ADAPTERS[library](import_module(library), model, takes_state)


def _function(model: UserModel, name: str) -> tuple[Callable[..., Any], bool]:
    """Return the loss or the metrics as a function `(network, batch, state, key, training)`.

    Returns:
        The function, and whether the user's function takes the state.

    Raises:
        InputError: if the user's function has other required arguments than network and minibatch.
    """
    function = getattr(model, name)
    arguments = parameters_of(function)
    required = [key for key, item in arguments.items() if item.default is item.empty and key not in GIVEN]
    if len(required) != 2:
        raise InputError(
            f"{model.file.path}: {name}: takes {', '.join(required)}; it takes the parameters or the module, "
            f"and a minibatch, and may take {', '.join(GIVEN)}"
        )

    def call(network: Any, batch: Any, state: Any, key: Any, training: bool) -> Any:
        given = {"key": key, "state": state, "training": training}
        if "key" in arguments and arguments["key"].default is not inspect.Parameter.empty and not training:
            del given["key"]
        values = {argument: value for argument, value in given.items() if argument in arguments}
        return function(**dict(zip(required, (network, batch), strict=True)), **values)

    return call, "state" in arguments


class _Form(NamedTuple):
    """Form in which update rules see a parameter: with its axes in another order, and then reshaped.

    Args:
        kept: shape of the parameter in the library.
        axes: axes of the parameter in their new order.
        shape: shape in which rules see the parameter.
    """

    kept: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def seen(self, array: Any) -> Any:
        return array.transpose(self.axes).reshape(self.shape)

    def restored(self, array: Any) -> Any:
        ordered = array.reshape([self.kept[axis] for axis in self.axes])
        return ordered.transpose([self.axes.index(axis) for axis in range(len(self.axes))])


class _Use(NamedTuple):
    """An operation that uses a parameter.

    Args:
        name: name of the parameter.
        operation: name of the operation.
        axes: the axes of the parameter, first the axes along which the outputs are. None if the operation is
            neither a matrix product nor a convolution.
        outputs: number of axes of the parameter along which the outputs are.
    """

    name: str
    operation: str
    axes: tuple[int, ...] | None = None
    outputs: int = 1


# Name of the parameter that a variable contains, and for each axis of the variable its origin.
# The origin of an axis of the variable is the corresponding axis of the parameter.
# None stands for the origins if the axes do not correspond, for example after a reshape.
_Origin = tuple[str, tuple[int, ...] | None]


def _uses(jaxpr: Any, origins: dict[Any, _Origin]) -> Iterator[_Use]:
    """Yield the operations that use parameters, in the order of computation.

    Args:
        jaxpr: the operations.
        origins: origin of each variable that contains a parameter. Variables that contain a parameter in
            another form are added.
    """
    for equation in jaxpr.eqns:
        bodies = [*jaxprs_in_params(equation.params)]
        for body in bodies:
            # The body receives the last arguments of the operation.
            # The body does not receive earlier arguments, such as the index that selects a branch of `cond`.
            given = equation.invars[len(equation.invars) - len(body.invars) :]
            own: dict[Any, _Origin] = {}
            for var, argument in zip(body.invars, given, strict=False):
                if origin := origins.get(_variable(argument)):
                    # If the shapes differ, the body of a loop receives a slice of stacked parameters.
                    own[var] = origin if var.aval.shape == argument.aval.shape else (origin[0], None)
            yield from _uses(body, own)
            results = zip(body.outvars, equation.outvars, strict=False)
            origins |= {var: own[_variable(result)] for result, var in results if _variable(result) in own}
        for place, argument in enumerate(equation.invars if not bodies else ()):
            if origin := origins.get(_variable(argument)):
                if equation.primitive.name in FORMS:
                    origins[equation.outvars[0]] = _in_form(equation, origin)
                else:
                    yield _use(equation, place, origin)


def _variable(argument: Any) -> Any:
    return None if isinstance(argument, Literal) else argument


def _in_form(equation: Any, origin: _Origin) -> _Origin:
    name, axes = origin
    if axes is None or equation.primitive.name not in AXES_KEPT:
        return name, None
    return name, tuple(axes[axis] for axis in equation.params.get("permutation", range(len(axes))))


def _use(equation: Any, place: int, origin: _Origin) -> _Use:
    """Return the use of a parameter by an operation whose argument with index `place` is the parameter."""
    (name, axes), operation = origin, equation.primitive.name
    numbers = equation.params.get("dimension_numbers")
    if axes is not None and operation == "conv_general_dilated" and place == 1:
        return _Use(name, operation, tuple(axes[axis] for axis in numbers.rhs_spec))
    if axes is not None and operation == "dot_general" and not numbers[1][place]:
        inputs = numbers[0][place]
        outputs = [axis for axis in range(len(axes)) if axis not in inputs]
        return _Use(name, operation, tuple(axes[axis] for axis in (*outputs, *inputs)), len(outputs))
    return _Use(name, operation)


def _form(name: str, shape: tuple[int, ...], uses: Sequence[_Use]) -> _Form:
    """Return the form in which rules see a parameter.

    A weight gets the shape (outputs, inputs), and a convolution the shape (outputs, inputs, ...). Other
    parameters keep their shape.
    """
    product = next((use for use in uses if use.axes), None)
    # Flax calls the weight of a layer `kernel`. The loss may use it after a concatenation.
    if product is None and uses and name.endswith("kernel"):
        product = _Use(name, "dot_general", (len(shape) - 1, *range(len(shape) - 1)))
    if product is None or product.axes is None or not 0 < product.outputs < len(shape):
        return _Form(shape, tuple(range(len(shape))), shape)
    ordered = tuple(shape[axis] for axis in product.axes)
    if product.operation == "dot_general":
        ordered = math.prod(ordered[: product.outputs]), math.prod(ordered[product.outputs :])
    return _Form(shape, product.axes, ordered)


def _kind(name: str, shape: Sequence[int], operations: Sequence[str]) -> str | None:
    """Return the kind of a parameter by the operations that use it; None if only its shape decides."""
    is_bias = name.endswith("bias")
    kinds = KINDS_OF_VECTORS | ({"concatenate": "bias"} if is_bias else {})
    is_vector = is_bias or math.prod(shape) == max(shape, default=0)
    if is_vector and operations and operations[0] in kinds:
        return kinds[operations[0]]
    if len(shape) < 2:
        return None
    return next((kind for operation, kind in KINDS_BY_OPERATION.items() if operation in operations), None)


def _kinds(
    shapes: Mapping[str, Sequence[int]], uses: Mapping[str, Sequence[_Use]], last: str
) -> dict[str, str]:
    """Return a mapping from names of parameters to kinds, for parameters whose kind operations decide.

    The bias of a norm has the kind `norm`, too. The weight of the last product is the head, unless it is the
    only parameter with several axes.

    Args:
        shapes: a mapping from the names of parameters to shapes.
        uses: uses of each parameter, by name of the parameter.
        last: name of the parameter that the last product uses.
    """
    found = {
        name: _kind(name, shape, [use.operation for use in uses[name]]) for name, shape in shapes.items()
    }
    kinds = {name: kind for name, kind in found.items() if kind}
    module_of = {name: name.rpartition(".")[0] or name for name in kinds}
    norms = {module_of[name] for name, kind in kinds.items() if kind == "norm"}
    kinds |= {name: "norm" for name in kinds if kinds[name] == "bias" and module_of[name] in norms}
    if kinds.get(last) == "weight" and sum(len(shape) > 1 for shape in shapes.values()) > 1:
        kinds[last] = "head"
    return kinds


def _named(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their paths, such as `layers.0.kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    # Each array of NNX is in a field `value`.
    # If the tree is a single array, its path is empty.
    names = [path.removesuffix(".value") or "parameters" for path in paths]
    return dict(zip(names, (leaf for _, leaf in leaves), strict=True))


@dataclass(frozen=True)
class _Traced:
    """A model whose loss has been traced once.

    Args:
        create: `create(seed) -> (params, state)`, nested arrays.
        call: `call(params, state, batch, key, training) -> (result, new state)`, where parameters and states
            are mappings from names to arrays, and parameters have the form in which rules see them. The
            result is the loss in training. In evaluation it is a mapping from the names of all metrics to
            values.
        forms: a mapping from the names of parameters to their forms, in the order in which the loss uses the
            parameters.
        kinds: a mapping from names of parameters to kinds, for parameters whose kind operations decide.
        draws: whether the loss draws random numbers, such as dropout masks.
        mapped: whether a batched program can compute several runs together.
    """

    create: Callable[[int], tuple[Any, Any]]
    call: Callable[..., tuple[Any, dict[str, Any]]]
    forms: Mapping[str, _Form]
    kinds: Mapping[str, str]
    draws: bool
    mapped: bool


@cache
def _traced(model: UserModel) -> _Traced:
    """Trace the loss and the metrics of a model on a few of its training examples.

    Raises:
        InputError: if the loss or a metric fails or does not return a number, or if the parameters are no
            arrays of real numbers.
    """
    path, structure = model.file.path, model.examples["train"].structure
    loss, takes_state = _function(model, "loss")
    metrics = _function(model, "metrics")[0] if model.metrics else None
    pure = _pure(model, takes_state)

    def function(key: Any, training: bool) -> Any:
        def evaluated(network: Any, batch: Any, state: Any) -> tuple[Any, Any]:
            value = loss(network, batch, state, key, training)
            if takes_state and not (isinstance(value, tuple) and len(value) == 2):
                raise InputError(f"{path}: loss: takes state; return (number, new state)")
            value, new = value if takes_state else (value, state)
            require_number(path, "loss", value)
            further = metrics(network, batch, state, key, False) if metrics and not training else {}
            return value if training else {**further, "loss": value}, new

        return evaluated

    def nested(batch: Any) -> Any:
        return jax.tree.unflatten(structure, [batch[str(number)] for number in range(len(batch))])

    def create(seed: int) -> tuple[Any, Any]:
        key = _key_of(seed)
        with _context(), global_seed(seed), attributed("loss", path):
            return pure.create(function(key, True), nested(example), key)

    def call(params: Any, state: Any, batch: Any, key: Any, training: bool) -> tuple[Any, dict[str, Any]]:
        trees = (
            jax.tree.unflatten(structures[0], [forms[name].restored(params[name]) for name in names]),
            jax.tree.unflatten(structures[1], [state[name] for name in state_names]),
        )
        result, new = pure.call(function(key, training), *trees, nested(batch), key, training)
        return result, {name: array.astype(state[name].dtype) for name, array in _named(new).items()}

    with _context():
        example = {name: jnp.asarray(array) for name, array in model.trial().items()}
        params, state = create(0)
        structures = jax.tree.structure(params), jax.tree.structure(state)
        leaves, states = _arrays(model, params), _named(state)
        names, state_names = [*leaves], [*states]
        forms = {name: _form(name, leaf.shape, ()) for name, leaf in leaves.items()}
        arguments = (leaves, states, example, _key_of(0))
        step = partial(call, training=True)
        with attributed("loss", path):
            jaxpr = jax.make_jaxpr(step)(*arguments).jaxpr
            jax.eval_shape(jax.grad(step, has_aux=True), *arguments)
        with attributed("metrics" if metrics else "loss", path):
            require_metrics(model, jax.eval_shape(partial(call, training=False), *arguments)[0])
        mapped = not has_convolution(jaxpr) and _maps(step, arguments)
    # The first variables are the parameters in the order of their names.
    # JAX flattens the arguments one after another, and each mapping in the order of its keys.
    origins: dict[Any, _Origin] = {
        var: (name, tuple(range(leaves[name].ndim)))
        for name, var in zip(sorted(names), jaxpr.invars, strict=False)
    }
    found = [*_uses(jaxpr, origins)]
    order = dict.fromkeys([*(use.name for use in found), *names])
    uses = {name: [use for use in found if use.name == name] for name in order}
    products = [use.name for use in found if use.operation == "dot_general"]
    forms = {name: _form(name, leaves[name].shape, uses[name]) for name in order}
    kinds = _kinds({name: form.shape for name, form in forms.items()}, uses, products[-1] if products else "")
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _Traced(create, call, forms, kinds, used[-1], mapped)


def _arrays(model: UserModel, params: Any) -> dict[str, Any]:
    """Return nested parameters as a mapping from their names to arrays.

    Raises:
        InputError: if there are no parameters, or a parameter is no array of real numbers.
    """
    where, named = f"{model.file.path}: {model.name or 'init'}: returns", _named(params)
    if not named:
        raise InputError(f"{where} no parameters; return arrays of real numbers")
    for name, leaf in named.items():
        is_array = isinstance(leaf, jax.Array | np.ndarray | float)
        if not is_array or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            kind = jnp.result_type(leaf).name if is_array else type(leaf).__name__
            raise InputError(
                f"{where} {name} of type {kind}; parameters are arrays of real numbers; keep other values in "
                "the loss, or return (params, state) if they are arrays, and let the loss take state"
            )
    return {name: jnp.asarray(leaf) for name, leaf in named.items()}


def _maps(step: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Return whether `jax.vmap` can compute the gradients of two runs together."""
    params, state, batch, key = arguments
    twice = jax.tree.map(lambda array: jnp.stack([array] * 2), (params, state))
    mapped = jax.vmap(jax.grad(step, has_aux=True), (0, 0, None, None))
    try:
        jax.eval_shape(mapped, *twice, batch, key)
    except Exception:  # operations that cannot be mapped raise various errors
        return False
    return True


def initial(model: UserModel, seed: int) -> Initial:
    """Construct a model with a random key that is derived from a seed; return its initial arrays."""
    traced = _traced(model)
    params, state = traced.create(seed)
    arrays = {name: np.asarray(leaf, np.float64) for name, leaf in _arrays(model, params).items()}
    return Initial(
        {name: form.seen(arrays[name]) for name, form in traced.forms.items()},
        {name: _host(leaf) for name, leaf in _named(state).items()},
        dict(traced.kinds),
    )


def _host(leaf: Any) -> np.ndarray:
    return np.array(leaf, np.float64 if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)


def functions(model: UserModel) -> Functions:
    """Return the loss and the metrics of a model, as functions of the arrays that rules see.

    Raises:
        InputError: if the loss or a metric fails, or does not return a number.
    """
    traced = _traced(model)

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> tuple[Any, Any, Any]:
        key = _key(noise[SEEDS].reshape(-1)[:2]) if SEEDS in noise else _key_of(0)
        return (*traced.call(params, state, batch, key, True), {})

    def evaluate(ops: Any, params: Any, state: Any, split: Any) -> dict[str, Any]:
        return traced.call(params, state, split, _key_of(0), False)[0]

    return Functions(loss, evaluate, traced.draws, traced.mapped)
