"""Models of PyTorch as workloads: any `torch.nn.Module` with a loss `(model, batch) -> scalar tensor`.

The loss calls the module as in any training loop. Before each call, the arrays of a run replace the module's
parameters and buffers. A lane is one of the runs that are computed together. If `torch.func.vmap` supports
all operations of the loss, several lanes are computed at once. Otherwise lanes are computed one after
another, by ordinary automatic differentiation.
"""

from __future__ import annotations

import random as python_random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curvebench.backends.engine import engine
from curvebench.interop.models import (
    SEEDS,
    TRIAL_EXAMPLES,
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
from curvebench.steps.derivatives import StepEvaluation, lane_evaluation

# Kind of the parameters except biases, for some classes of layers.
# If several classes match a layer, the first class decides.
KINDS_OF_LAYERS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((torch.nn.Embedding, torch.nn.EmbeddingBag), "embedding"),
    ((torch.nn.modules.conv._ConvNd,), "convolution"),
    ((torch.nn.Linear, torch.nn.Bilinear, torch.nn.RNNBase, torch.nn.RNNCellBase), "weight"),
    ((torch.nn.MultiheadAttention,), "weight"),
    (
        (torch.nn.modules.batchnorm._NormBase, torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.RMSNorm),
        "norm",
    ),
)


def constructor(file: ModelFile, name: str) -> tuple[Callable[..., Any], Collection[str]]:
    """Return the constructor of a model, and the names of its arguments that a study does not set.

    The constructor is a class of modules or a function that returns a module. A study may set all arguments,
    so that there are no names.
    """
    if not name:
        raise InputError(
            f"{file.locator}: add the name of the model: {file.locator}:NAME (compare: --model NAME)"
        )
    made = file.named(name, "model")
    if not callable(made):
        raise InputError(f"{file.path}: {name} is neither a class of modules nor a function that returns one")
    return made, ()


def flatten(data: Any) -> tuple[list[Any], Any]:
    """Return the leaves of nested data, and the structure of the nesting."""
    return pytree.tree_flatten(data)


@contextmanager
def _seed(seed: int, on_host: bool = True) -> Iterator[None]:
    """Return a context in which the global generators of PyTorch are seeded.

    At the end, the generators are restored.

    Args:
        seed: the seed.
        on_host: whether the global generators of Python and NumPy are seeded, too. This takes longer than the
            call of a small layer.
    """
    gpus = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=gpus), global_seed(seed) if on_host else nullcontext():
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed(seed)
        yield


def _module(model: UserModel, seed: int) -> torch.nn.Module:
    with _seed(seed), attributed(model.name, model.file.path):
        module = model.file.named(model.name, "model")(**model.arguments)
    if not isinstance(module, torch.nn.Module):
        returned = type(module).__name__
        raise InputError(f"{model.file.path}: {model.name} returns {returned}; return a torch.nn.Module")
    if any(map(torch.nn.parameter.is_lazy, (*module.parameters(), *module.buffers()))):
        raise InputError(f"{model.file.path}: {model.name} has lazy layers; give their numbers of inputs")
    return module


def initial(model: UserModel, seed: int) -> Initial:
    """Construct a module with seeded global generators, and return its initial arrays.

    Parameters that do not require a gradient belong to the model state, like buffers. A parameter that
    several layers share occurs once, under its first name.
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
    """Return the kinds of the parameters of layers in KINDS_OF_LAYERS, by name of the parameter.

    The weight of the last linear layer is the head if the module has another weight, convolution or
    embedding.
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


class _Filled:
    """A module that is called with the arrays of a run instead of its own parameters and buffers.

    The arrays stay in the module until the next call, because a backward pass may call the module again to
    recompute activations. (`torch.func.functional_call` is not used, because it removes the arrays before the
    backward pass, and because it leaves an array in a module that is registered twice.)

    Args:
        module: the module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        names = {tensor: name for name, tensor in (*module.named_buffers(), *module.named_parameters())}
        self.places = [
            (owner, key, names[tensor])
            for part in module.modules()
            for owner in (part._parameters, part._buffers)
            for key, tensor in owner.items()
            if tensor is not None
        ]

    def __call__(self, function: Any, tensors: Mapping[str, torch.Tensor], batch: Any) -> tuple[Any, Any]:
        """Return `function(module, batch)`, and the named parameters and buffers after the call."""
        for owner, key, name in self.places:
            owner[key] = tensors[name]
        result = function(self.module, batch)
        return result, {name: owner[key] for owner, key, name in self.places}

    @property
    def numbers(self) -> dict[str, float]:
        """Numeric attributes of the module and its submodules; the names are like `self.layer.count`."""
        return {
            f"{name}.{key}": value
            for name, part in self.module.named_modules(prefix="self")
            for key, value in vars(part).items()
            if isinstance(value, int | float)
        }


class _PairedTargets(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """Context in which losses of PyTorch on pairs of output and target can be mapped over seeds and settings.

    Outputs are mapped over seeds and settings, but targets only over seeds. PyTorch 2.13 refuses such nested
    maps for three losses. Adding a zero from each output to the targets maps the targets equally, and changes
    no value.
    """

    losses = frozenset((functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss))

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in self.losses and len(args) > 1:
            outputs, targets, *others = args
            args = (outputs, targets + torch.zeros_like(outputs), *others)
        return function(*args, **(kwargs or {}))


class _Watch(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Context that records in `draws` whether operations of PyTorch draw random numbers."""

    draws = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws |= torch.Tag.nondeterministic_seeded in function.tags
        return function(*args, **(kwargs or {}))


def _next_draws() -> tuple[float, float]:
    """Return the next random numbers of the global generators of Python and NumPy."""
    return python_random.random(), np.random.random()  # noqa: NPY002 (users draw from it)


def functions(model: UserModel) -> Functions:
    """Return the loss and the metrics of a model, after a trial on a few of its training examples.

    Raises:
        InputError: if the loss is no scalar, if the metrics differ from the metrics that the settings
            declare, or if results depend on earlier calls.
    """
    structure = model.examples["train"].structure
    in_training, in_evaluation = (_Filled(_module(model, 0).train(mode)) for mode in (True, False))

    def value(network: torch.nn.Module, batch: Any) -> Any:
        number = model.loss(network, batch)
        require_number(model.file.path, "loss", number)
        return number

    def measured(network: torch.nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        further = model.metrics(network, batch) if model.metrics else {}
        values = {**further, "loss": value(network, batch)}
        values = {
            name: number if isinstance(number, torch.Tensor) else torch.tensor(number, dtype=torch.float64)
            for name, number in values.items()
        }
        require_metrics(model, values)
        return values

    def call(filled: _Filled, function: Any, params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        """Call a function with the arrays of a run, and return its result and the new state."""
        # Clone the state, because layers such as batch normalization overwrite their buffers.
        tensors = {**params, **{name: tensor.clone() for name, tensor in state.items()}}
        nested = pytree.tree_unflatten([batch[str(n)] for n in range(len(batch))], structure)
        is_mapped = torch._C._functorch.maybe_current_level() is not None
        with _PairedTargets() if is_mapped else nullcontext():
            result, after = filled(function, tensors, nested)
        return result, {name: after[name] for name in state}

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> tuple[Any, Any, Any]:
        drawn = SEEDS in noise
        with _seed(int(noise[SEEDS].flatten()[0]), trial.draws_on_host) if drawn else nullcontext():
            return (*call(in_training, value, params, state, batch), {})

    def evaluate(ops: Any, params: Any, state: Any, split: Any) -> dict[str, Any]:
        with _seed(0, trial.draws_on_host) if draws else nullcontext():
            return call(in_evaluation, measured, params, state, split)[0]

    draws = False
    trial = _Trial(model, loss, evaluate)
    with _Watch() as watch:
        trial.check([in_training, in_evaluation])
    draws = watch.draws or trial.draws_on_host
    return Functions(loss, evaluate, draws, not draws and trial.maps())


class _Trial:
    """Trial of the loss and the metrics of a model in four lanes: 2 seeds x 2 settings.

    Each seed has its own small minibatch, and each setting its own parameters.

    Args:
        model: the model.
        loss, evaluate: functions of the model, for the fields of `Workload` with these names.
    """

    draws_on_host = False  # whether a call of `results` drew random numbers of Python or NumPy

    def __init__(self, model: UserModel, loss: Any, evaluate: Any) -> None:
        derivatives = engine("torch", "float32")
        self.model, self.path = model, model.file.path
        self.step = StepEvaluation(derivatives, loss, per_seed=True)
        self.measure = lane_evaluation(derivatives, evaluate, per_seed=True)
        # Construct modules before `check` is called, which records draws: initial parameters are drawn, too.
        self.modules = [_module(model, 0).train(mode) for mode in (True, False)]
        module = self.modules[0]
        tensors = dict((*module.named_buffers(), *module.named_parameters()))
        lanes = {
            name: torch.stack([torch.stack([tensor.detach()] * 2)] * 2) for name, tensor in tensors.items()
        }
        self.params = {name: array for name, array in lanes.items() if tensors[name].requires_grad}
        self.state = {name: array for name, array in lanes.items() if name not in self.params}
        for array in self.params.values():
            array[:, 1] *= 0.9
        examples = [model.trial(0), model.trial(TRIAL_EXAMPLES)]
        self.batch = {
            name: torch.stack([torch.as_tensor(arrays[name]).to(_single(array.dtype)) for arrays in examples])
            for name, array in examples[0].items()
        }

    def results(self, seeds: slice, settings: slice) -> Any:
        """Compute loss, gradient, new state and metrics for the lanes of some seeds and settings.

        Raises:
            InputError: if the loss or the metrics fail, or change their minibatch; or if a gradient is
                sparse.
        """
        params = {name: array[seeds, settings].clone() for name, array in self.params.items()}
        state = {name: array[seeds, settings] for name, array in self.state.items()}
        batch = {name: array[seeds].clone() for name, array in self.batch.items()}
        with _seed(0):
            untouched = _next_draws()
        with attributed("loss", self.path), _seed(0):
            step = self.step(params, state, batch, {}, False)
            self.draws_on_host |= _next_draws() != untouched
        with attributed("metrics", self.path), _seed(0), torch.no_grad():
            metrics = self.measure(params, state, batch)
            self.draws_on_host |= _next_draws() != untouched
        if not _close([batch], [{name: array[seeds] for name, array in self.batch.items()}], 0.0):
            raise InputError(f"{self.path}: loss or metrics change the minibatch in place; copy it first")
        if sparse := [name for name, gradient in step.gradient.items() if gradient.is_sparse]:
            raise InputError(f"{self.path}: {sparse[0]} has sparse gradients; give its layer sparse=False")
        return *step, metrics

    def check(self, called: Sequence[_Filled]) -> None:
        """Check that the results of the loss and the metrics are valid, and depend only on their arguments.

        The results are computed several times, and are compared with a plain loop of PyTorch.

        Args:
            called: the modules that the loss and the metrics call.

        Raises:
            InputError: if the results are invalid, depend on earlier calls, or differ from the results of a
                plain loop.
        """
        numbers = [filled.numbers for filled in called]
        results = [self.results(slice(seed, seed + 1), slice(0, 1)) for seed in (0, 1, 0)]
        changed = [
            name
            for filled, before in zip(called, numbers, strict=True)
            for name, number in filled.numbers.items()
            if before.get(name) != number
        ]
        if changed or not _close(results[0], results[2], 1e-6):
            what = f"{changed[0]} changes in a call" if changed else "a repeated call gives another result"
            raise InputError(
                f"{self.path}: {what}, but many runs use the same module; store what changes in a buffer "
                "(register_buffer), and draw random numbers from the global generators"
            )
        value, gradient, _, _, metrics = results[0]
        if not _close([value, gradient, metrics["loss"]], self._plain(), 1e-4):
            raise InputError(
                f"{self.path}: loss: is another number than in a loop of PyTorch, since tensors replace the "
                "parameters; do not use requires_grad, nn.Parameter, or parameters that other objects hold"
            )

    def _plain(self) -> tuple[Any, Any, Any]:
        """Return the loss, gradient and loss in evaluation that a plain loop computes for the first lane."""
        training, evaluated = self.modules
        structure = self.model.examples["train"].structure
        batches = [
            pytree.tree_unflatten([a[0].clone() for a in self.batch.values()], structure) for _ in "12"
        ]
        with _seed(0):
            value = self.model.loss(training, batches[0])
            value.backward()
        with _seed(0), torch.no_grad():
            in_evaluation = self.model.loss(evaluated, batches[1])
        params = dict(training.named_parameters())
        zeros = torch.zeros_like
        return (
            value.detach(),
            [zeros(params[name]) if params[name].grad is None else params[name].grad for name in self.params],
            in_evaluation,
        )

    def maps(self) -> bool:
        """Return whether all lanes can be computed together, with equal results as one after another."""
        both = slice(0, 2)
        try:
            together = self.results(both, both)
        except InputError:  # raised for any error, such as of an operation that cannot be mapped
            return False
        return all(
            _close(
                pytree.tree_map(lambda array, n=number: array[n : n + 1, n : n + 1], together),
                self.results(slice(number, number + 1), slice(number, number + 1)),
                1e-3,
            )
            for number in range(2)
        )


def _close(results: Sequence[Any], expected: Sequence[Any], tolerance: float) -> bool:
    """Return whether results equal expected results.

    A result is an array or a mapping of arrays, such as all gradients. The tolerance is relative to the
    largest absolute value in the expected result as a whole, because a gradient that should be 0 may consist
    of rounding errors relative to the other gradients.
    """
    for result, wanted in zip(map(_flat, results), map(_flat, expected), strict=True):
        allowed = tolerance * float(wanted.abs().nan_to_num(0).max())
        if not torch.allclose(result, wanted, 0.0, allowed, equal_nan=True):
            return False
    return True


def _flat(result: Any) -> torch.Tensor:
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.cat([zero, *(leaf.double().flatten() for leaf in pytree.tree_leaves(result))])


def _single(dtype: np.dtype[Any]) -> torch.dtype:
    """Return float32 for a type of real numbers; for any other type, the same type of PyTorch."""
    return torch.float32 if dtype.kind == "f" else torch.as_tensor(np.zeros((), dtype)).dtype
