"""Models of PyTorch as workloads: any `torch.nn.Module` with a loss `(model, batch) -> scalar tensor`.

The loss calls the module as in any training loop; `torch.func.functional_call` puts the arrays of a run in
the place of its parameters and buffers. Runs are computed together by `torch.func.vmap` if all operations of
the loss have a rule for it, else one after another, by ordinary automatic differentiation.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from curvebench.interop.models import (
    MAX_RESIDENT_BYTES,
    SEEDS,
    Examples,
    Functions,
    Initial,
    ModelFile,
    UserModel,
    attributed,
    global_seed,
)
from curvebench.spec.errors import InputError
from curvebench.workloads.workload import placeholder_of

# Kinds of the parameters of layers, apart from biases, by the class of the layer. Earlier classes win.
KINDS_OF_LAYERS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((torch.nn.Embedding, torch.nn.EmbeddingBag), "embedding"),
    ((torch.nn.modules.conv._ConvNd,), "convolution"),
    ((torch.nn.Linear, torch.nn.Bilinear, torch.nn.RNNBase, torch.nn.RNNCellBase), "weight"),
    ((torch.nn.MultiheadAttention,), "weight"),
    (
        (
            torch.nn.modules.batchnorm._NormBase,
            torch.nn.LayerNorm,
            torch.nn.GroupNorm,
            torch.nn.RMSNorm,
        ),
        "norm",
    ),
)
TRIAL_EXAMPLES = 4  # number of examples in the trial of a loss
PREFIX = "model."  # names of the model's arrays in the module that calls loss and metrics


def arguments(file: ModelFile, name: str) -> Mapping[str, Any]:
    """Return the defaults of the arguments of a class of modules, or of a function that returns a module.

    The default of an argument without one, or whose default is no plain value, is None; such an argument is
    passed only if a study gives it.
    """
    if not name:
        raise InputError(f"{file.locator}: add the name of the model: {file.locator}:NAME")
    made = file.named(name, "model")
    if not callable(made):
        raise InputError(f"{file.path}: {name} is neither a class of modules nor a function that returns one")
    parameters = inspect.signature(made).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {item.name: _plain(item.default) for item in parameters if item.kind not in variadic}


def _plain(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return None


class _Source:
    """A data set of PyTorch that is too large for memory, as a `DataSource`."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, number: int, generator: np.random.Generator | None) -> Mapping[str, np.ndarray]:
        """Return the arrays of an example. It is not augmented, since data must not change."""
        leaves = pytree.tree_leaves(default_collate([self.dataset[number]]))
        return {name: array[0] for name, array in _arrays(leaves).items()}

    def placeholder(self, is_training: bool) -> Mapping[str, np.ndarray]:
        """Return the arrays of the first example."""
        return self.fetch(0, None)

    notes: list[str] = []  # noqa: RUF012 (a protocol asks for it)


def examples(data: Any) -> Examples:
    """Return a data set of PyTorch, or nested tensors or arrays whose first axis counts examples.

    Raises:
        TypeError: if `data` is something else.
    """
    if isinstance(data, IterableDataset) or not (isinstance(data, Dataset) or pytree.tree_leaves(data)):
        raise TypeError("is no data set with a length and an index, and no arrays")
    if isinstance(data, TensorDataset):
        data = data.tensors
    if not isinstance(data, Dataset):
        leaves, structure = pytree.tree_flatten(data)
        arrays = _arrays([torch.as_tensor(leaf) for leaf in leaves])
        if len({array.shape[:1] for array in arrays.values()}) != 1 or () in {
            a.shape for a in arrays.values()
        }:
            raise TypeError("has arrays whose first axes, which count examples, differ")
        return Examples(arrays, structure)
    count = len(data)
    first = default_collate([data[0]])
    structure = pytree.tree_structure(first)
    size = sum(array.nbytes for array in _arrays(pytree.tree_leaves(first)).values())
    if size * count > MAX_RESIDENT_BYTES:
        return Examples(_Source(data), structure)
    leaves = pytree.tree_leaves(default_collate([data[number] for number in range(count)]))
    return Examples(_arrays(leaves), structure)


def _arrays(leaves: list[Any]) -> dict[str, np.ndarray]:
    """Return tensors as arrays by number, real numbers in float64."""
    arrays = {}
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.is_complex():
            raise TypeError(f"has {type(leaf).__name__}; examples consist of tensors and numbers")
        tensor = leaf.detach()
        arrays[str(number)] = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    return arrays


@contextmanager
def _seed(seed: int) -> Iterator[None]:
    """Return a context in which all global generators are seeded; it restores them."""
    with torch.random.fork_rng(devices=[]), global_seed(seed):
        torch.default_generator.manual_seed(seed)
        yield


def _module(file: ModelFile, name: str, arguments: Mapping[str, Any], seed: int) -> torch.nn.Module:
    with _seed(seed):
        module = file.named(name, "model")(**arguments)
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{file.path}: {name} returns {type(module).__name__}; return a torch.nn.Module")
    return module


def initial(file: ModelFile, name: str, arguments: Mapping[str, Any], seed: int) -> Initial:
    """Construct a module under a seed.

    Parameters that do not require a gradient belong to the state, like buffers. A parameter that several
    layers share occurs once, under its first name.
    """
    module = _module(file, name, arguments, seed)
    named = dict(module.named_parameters())
    trained = {key: param for key, param in named.items() if param.requires_grad}
    if not trained:
        raise InputError(f"{file.path}: {name} has no parameter that requires a gradient")
    others = {key: param for key, param in named.items() if key not in trained}
    return Initial(
        {key: _array(param) for key, param in trained.items()},
        {key: _array(tensor) for key, tensor in (*others.items(), *module.named_buffers())},
        {key: kind for key, kind in _kinds(module).items() if key in trained},
    )


def _array(tensor: torch.Tensor) -> np.ndarray:
    host = tensor.detach()
    return np.array((host.double() if host.is_floating_point() else host).numpy())


def _kinds(module: torch.nn.Module) -> dict[str, str]:
    """Return the kinds of the parameters of known layers, by name.

    The weight of the last linear layer is the head, if another layer with a weight precedes it.
    """
    kinds: dict[str, str] = {}
    names = {param: name for name, param in module.named_parameters()}
    linear = None
    for layer in module.modules():
        kind = next((kind for classes, kind in KINDS_OF_LAYERS if isinstance(layer, classes)), None)
        if kind is None:
            continue
        for key, param in layer.named_parameters(recurse=False):
            name, is_bias = names[param], "bias" in key and kind != "norm"
            kinds.setdefault(name, "bias" if is_bias else kind)
            if isinstance(layer, torch.nn.Linear) and kinds[name] == "weight":
                linear = name
    if (
        linear is not None
        and sum(kind in ("weight", "convolution", "embedding") for kind in kinds.values()) > 1
    ):
        kinds[linear] = "head"
    return kinds


class _Called(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A module whose call is a function of a user's model and a minibatch."""

    def __init__(self, model: torch.nn.Module, function: Any) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, batch: Any) -> Any:
        return self.function(self.model, batch)


class _Watch(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Context that finds out whether operations draw random numbers."""

    draws = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws |= torch.Tag.nondeterministic_seeded in function.tags
        return function(*args, **(kwargs or {}))


def functions(model: UserModel) -> Functions:
    """Return the functions of a module, after a trial on a few of its training examples.

    Raises:
        InputError: if the loss is no scalar, or the metrics are not those that the settings declare.
    """
    module = _module(model.file, model.name, model.arguments, 0)
    structure = model.examples["train"].structure

    def measured(network: torch.nn.Module, batch: Any) -> dict[str, Any]:
        further = model.metrics(network, batch) if model.metrics else {}
        return {"loss": model.loss(network, batch), **further}

    in_training = _Called(copy.deepcopy(module).train(), model.loss)
    in_evaluation = _Called(copy.deepcopy(module).eval(), measured)

    def call(called: _Called, params: Any, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Call a function with the arrays of a run, and return its result and the new state."""
        tensors = {PREFIX + name: tensor for name, tensor in (*params.items(), *state.items())}
        nested = pytree.tree_unflatten([batch[str(n)] for n in range(len(batch))], structure)
        result = torch.func.functional_call(called, tensors, (nested,))
        return result, {name: tensors[PREFIX + name] for name in state}

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> tuple[Any, Any, Any]:
        # Layers such as batch normalization overwrite their buffers.
        own = {name: tensor.clone() for name, tensor in state.items()}
        if SEEDS not in noise:
            return (*call(in_training, params, own, batch), {})
        with _seed(int(noise[SEEDS].flatten()[0])):
            return (*call(in_training, params, own, batch), {})

    def evaluate(ops: Any, params: Any, state: Any, split: Any) -> dict[str, Any]:
        own = {name: tensor.clone() for name, tensor in state.items()}
        if not draws:
            return call(in_evaluation, params, own, split)[0]
        with _seed(0):
            return call(in_evaluation, params, own, split)[0]

    example = placeholder_of(model.examples["train"].split)
    batch = {
        name: torch.as_tensor(np.stack([array] * TRIAL_EXAMPLES)).to(_single(array.dtype))
        for name, array in example.items()
    }
    params = {name: param for name, param in module.named_parameters() if param.requires_grad}
    state = {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    state = {name: tensor for name, tensor in state.items() if name not in params}
    draws = False
    with attributed("loss", model.file.path), _seed(0), _Watch() as watch:
        value, _, _ = loss(None, params, state, batch, {})
        if not isinstance(value, torch.Tensor) or value.shape:
            raise InputError(
                f"{model.file.path}: loss: returns {_described(value)}; return one number, a mean"
            )
        value.backward()
    with attributed("metrics", model.file.path), watch, _seed(0), torch.no_grad():
        values = evaluate(None, params, state, batch)
    if unequal := {*values} ^ {"loss", *model.names}:
        raise InputError(
            f"{model.file.path}: metrics: {', '.join(sorted(unequal))} is returned or declared, but not "
            "both; name every metric under maximize or minimize"
        )
    draws = watch.draws
    return Functions(loss, evaluate, draws, not draws and _maps(loss, evaluate, params, state, batch))


def _described(value: Any) -> str:
    return (
        f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    )


def _single(dtype: np.dtype[Any]) -> torch.dtype:
    """Return float32 for real numbers, and the type itself for others."""
    return torch.float32 if dtype.kind == "f" else torch.as_tensor(np.zeros((), dtype)).dtype


def _maps(loss: Any, evaluate: Any, params: Any, state: Any, batch: Any) -> bool:
    """Return whether loss, gradient and metrics of two runs can be computed together."""

    def value(params: Any, state: Any) -> Any:
        return loss(None, params, state, batch, {})[:2]

    def twice(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: torch.stack([tensor.detach()] * 2) for name, tensor in tensors.items()}

    try:
        torch.func.vmap(torch.func.grad(value, has_aux=True))(twice(params), twice(state))
        with torch.no_grad():
            measured = torch.func.vmap(lambda p, s: evaluate(None, p, s, batch))
            measured(twice(params), twice(state))
    except Exception:  # any operation may refuse in its own way
        return False
    return True
