"""Models of PyTorch as workloads: any `torch.nn.Module` with a loss `(model, batch) -> scalar tensor`.

The loss calls the module as in any training loop; `torch.func.functional_call` puts the arrays of a run in
the place of its parameters and buffers. Runs are computed together by `torch.func.vmap` if all operations of
the loss have a rule for it, else one after another, by ordinary automatic differentiation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curvebench.interop.models import (
    SEEDS,
    Functions,
    Initial,
    ModelFile,
    UserModel,
    attributed,
    global_seed,
    require_metrics,
    require_number,
)
from curvebench.spec.errors import InputError

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
PREFIX = "model."  # names of the model's arrays in the module that calls loss and metrics


def constructor(file: ModelFile, name: str) -> tuple[Callable[..., Any], Collection[str]]:
    """Return a class of modules, or a function that returns a module; all its arguments are settings."""
    if not name:
        raise InputError(f"{file.locator}: add the name of the model: {file.locator}:NAME")
    made = file.named(name, "model")
    if not callable(made):
        raise InputError(f"{file.path}: {name} is neither a class of modules nor a function that returns one")
    return made, ()


def flatten(data: Any) -> tuple[list[Any], Any]:
    """Return the leaves of nested data, and their structure."""
    return pytree.tree_flatten(data)


@contextmanager
def _seed(seed: int) -> Iterator[None]:
    """Return a context in which all global generators are seeded; it restores them."""
    with torch.random.fork_rng(devices=[]), global_seed(seed):
        torch.default_generator.manual_seed(seed)
        yield


def _module(model: UserModel, seed: int) -> torch.nn.Module:
    with _seed(seed):
        module = model.file.named(model.name, "model")(**model.arguments)
    if not isinstance(module, torch.nn.Module):
        returned = type(module).__name__
        raise InputError(f"{model.file.path}: {model.name} returns {returned}; return a torch.nn.Module")
    return module


def initial(model: UserModel, seed: int) -> Initial:
    """Construct a module under a seed.

    Parameters that do not require a gradient belong to the state, like buffers. A parameter that several
    layers share occurs once, under its first name.
    """
    module = _module(model, seed)
    named = dict(module.named_parameters())
    trained = {key: param for key, param in named.items() if param.requires_grad}
    if not trained:
        raise InputError(f"{model.file.path}: {model.name} has no parameter that requires a gradient")
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
    module = _module(model, 0)
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

    batch = {name: torch.as_tensor(array).to(_single(array.dtype)) for name, array in model.trial.items()}
    params = {name: param for name, param in module.named_parameters() if param.requires_grad}
    state = {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    state = {name: tensor for name, tensor in state.items() if name not in params}
    draws = False
    with attributed("loss", model.file.path), _seed(0), _Watch() as watch:
        value, _, _ = loss(None, params, state, batch, {})
        require_number(model.file.path, "loss", value)
        value.backward()
    with attributed("metrics", model.file.path), watch, _seed(0), torch.no_grad():
        values = evaluate(None, params, state, batch)
    require_metrics(model, values)
    draws = watch.draws
    return Functions(loss, evaluate, draws, not draws and _maps(loss, evaluate, params, state, batch))


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
