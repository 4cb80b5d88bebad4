"""Models of users as workloads: code for models of both PyTorch and JAX.

A study names a model by a locator, such as `torch:my_gru.py:GRU` or `jax:my_rnn.py`. Settings of the workload
name the loss, the data and the metrics, which are objects of the same file. Further settings are arguments
with which the model is constructed.

The loss and the metrics call the library (PyTorch or JAX) instead of the array functions `ops`. Therefore the
workload runs on one backend only (`Workload.backend`).
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import random as python_random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np

from curvebench.interop.files import FILE, as_errors_of_user, imported_names, load_file, with_neighbours
from curvebench.interop.foreign import Location, distributions_of
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import MODELS
from curvebench.spec.values import whole
from curvebench.steps.examples import gathered
from curvebench.steps.layout import KINDS, roles_of
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import (
    Loss,
    Metric,
    Problem,
    Role,
    Setting,
    Split,
    Workload,
    examples_in,
    require_batch,
)

# Packages of each library.
# A file with models of the library imports at least one of its packages.
IMPORTED = {"torch": {"torch"}, "jax": {"jax", "flax", "equinox", "haiku"}}
SPLITS = ("train", "validation", "test")
DIRECTIONS: tuple[Literal["maximize"], Literal["minimize"]] = ("maximize", "minimize")
EVALUATED_AT_ONCE = 1_000  # default number of examples that one call evaluates
# If a split has more than this number of bytes, examples are read when they are used, and not all at once.
MAX_RESIDENT_BYTES = 1 << 30
COMPARED_EXAMPLES = 4  # two data sources are compared by this number of first examples
TRIAL_EXAMPLES = 4  # number of examples in the trial of a loss
SEEDS = "seeds"  # name of the array of seeds among the random numbers of a step
ONLY = "only"  # name in a file for an array that the user gives without a name
# Suffix of files of arrays.
# A split of the data may be a file with this suffix, instead of an object in the model's file.
STORED_DATA = ".npz"


def is_model(name: str) -> bool:
    """Return whether a name is the locator of a model in a file: `torch:path.py:Name` or `jax:path.py`."""
    library, colon, rest = name.partition(":")
    return bool(colon) and library in MODELS and FILE.fullmatch(rest) is not None


def packages(locator: str) -> tuple[str, ...]:
    """Return the names of the distributions whose versions decide the results of a model.

    The distributions contain the model's library, and the packages, such as Flax, that the model's file and
    its neighbours (imported modules of the same folder) import.
    """
    at = location(locator)
    imported = (name for file in with_neighbours(Path(at.module)) for name in imported_names(file, ""))
    return distributions_of({MODELS[at.library], *(name.split(".")[0] for name in imported)} - {"curvebench"})


def location(locator: str) -> Location:
    """Parse the locator of a model, such as `torch:my_gru.py:GRU`. On JAX, the name may be empty."""
    library, _, rest = locator.partition(":")
    match = FILE.fullmatch(rest)
    assert match is not None, "callers ask is_model"
    return Location(library, match["path"], match["item"] or "", is_file=True)


@dataclass(frozen=True)
class ModelFile:
    """A user's file that defines a model, its loss and its data.

    Args:
        locator: the locator of the model, for messages.
        path: the file.
        objects: the objects of the file by their global names.
    """

    locator: str
    path: Path
    objects: Mapping[str, Any]

    @classmethod
    def of(cls, locator: str) -> ModelFile:
        """Import the file of a model, with global random generators that are seeded by 0.

        Raises:
            InputError: if the file does not exist, or if its import raises an error.
        """
        path = Path(location(locator).module).resolve()
        with attributed(locator, path), global_seed(0):
            return cls(locator, path, vars(load_file(path)))

    def named(self, name: str, kind: str) -> Any:
        """Return the object that has a global name in the file.

        Args:
            name: the name.
            kind: kind of the object, such as `loss`, for the message.

        Raises:
            InputError: if the file does not define the name.
        """
        if name not in self.objects:
            own = [key for key, item in self.objects.items() if _is_defined_here(key, item, self.objects)]
            raise InputError(unknown(str(self.path), kind, name, own))
        return self.objects[name]

    def evaluated(self, text: str, key: str) -> Any:
        """Return the object that the text of a setting, such as `data` or `Adding(500, seed=1)`, describes.

        Args:
            text: a global name of the file, or a call of a global name with constants as arguments.
            key: name of the setting, such as `train`, for messages.

        Raises:
            InputError: if the text is neither a name nor such a call, or if the call raises an error.
        """
        try:
            name, args, keywords = _parsed(text)
        except (SyntaxError, ValueError) as error:
            raise InputError(
                f"{key}: {text!r} is neither a name in {self.path} nor a call of one with constants, such as "
                "Adding(500, seed=1)"
            ) from error
        item = self.named(name, key)
        if not callable(item):
            return item
        with attributed(f"{key}: {text}", self.path):
            return item(*args, **keywords)


def _parsed(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Parse a name, or a call of a name with constants: return the name, and the arguments of the call.

    Raises:
        SyntaxError, ValueError: if the text is neither a name nor such a call.
    """
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Name):
        return node.id, [], {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(text)
    keywords = {str(item.arg): ast.literal_eval(item.value) for item in node.keywords}
    return node.func.id, [ast.literal_eval(arg) for arg in node.args], keywords


def _is_defined_here(name: str, item: Any, objects: Mapping[str, Any]) -> bool:
    """Return whether a file defines a global name, rather than importing it from another module."""
    module = getattr(item, "__module__", None)
    is_own = module in (None, objects.get("__name__")) or not isinstance(item, type | FunctionType)
    return is_own and not name.startswith("_") and not isinstance(item, ModuleType)


def attributed(owner: str, path: Path) -> AbstractContextManager[None]:
    """Return a context that turns an exception of a user's code into an InputError with the line in the file.

    Args:
        owner: name of the evaluated object, such as `loss`, for the message.
        path: the user's file.
    """
    return as_errors_of_user(f"{path}: {owner}: fails", path)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Return a context in which the global random generators of Python and NumPy are seeded.

    If PyTorch is imported, its generator on the CPU is seeded, too. At the end, all generators are restored.
    """
    torch = sys.modules.get("torch")
    python, numpy = python_random.getstate(), np.random.get_state()  # noqa: NPY002 (users draw from it)
    with torch.random.fork_rng(devices=[]) if torch else nullcontext():
        python_random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        if torch:
            torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            python_random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


class Examples(NamedTuple):
    """The examples of a split.

    Args:
        split: a mapping from fields to arrays, or a data source if the arrays would be larger than
            MAX_RESIDENT_BYTES. An example consists of nested arrays; the leaf with index i is the field `i`,
            as text.
        structure: structure of the library (a pytree) by which a minibatch is nested again from its leaves.
    """

    split: Split
    structure: Any


class Initial(NamedTuple):
    """A model at the start of a run, as mappings from names to NumPy arrays.

    Args:
        parameters: the trained parameters.
        state: the model state: buffers, and parameters that are not trained.
        kinds: a mapping from names of parameters to kinds. A parameter is missing if only its shape decides
            its kind.
    """

    parameters: dict[str, np.ndarray]
    state: dict[str, np.ndarray]
    kinds: dict[str, str]


class Functions(NamedTuple):
    """The functions of a model for given settings, as fields of `Workload`.

    Args:
        loss, evaluate: the functions in the fields of `Workload` with these names.
        draws: whether the loss draws random numbers, such as dropout masks.
        mapped: whether a batched program can compute several runs together.
    """

    loss: Loss
    evaluate: Callable[[Ops, Arrays, Arrays, Arrays], dict[str, Array]]
    draws: bool
    mapped: bool


class Library(Protocol):
    """Functions that differ between PyTorch and JAX. `torch_model` and `jax_model` implement them."""

    def constructor(self, file: ModelFile, name: str) -> tuple[Callable[..., Any], Collection[str]]:
        """Return the constructor of a model, and the names of its arguments that a study does not set.

        The constructor is a class or function. An example of an argument that is not set is a key of random
        numbers.
        """

    def flatten(self, data: Any) -> tuple[list[Any], Any]:
        """Return the leaves of nested data, and their structure."""

    def initial(self, model: UserModel, seed: int) -> Initial:
        """Construct a model whose initial parameters are drawn with a seed, and return its initial arrays."""

    def functions(self, model: UserModel) -> Functions:
        """Return the loss and the metrics of a model, after a trial on a few of its training examples.

        Raises:
            InputError: if the loss or the metrics fail, or do not return numbers.
        """


@dataclass(frozen=True, eq=False)
class UserModel:
    """A model with its data for given settings.

    Args:
        file: the user's file.
        name: name of the model in the file; empty if the function `init` of the file constructs the model.
        settings: a mapping from the names of all settings to their values.
        arguments: a mapping from names to values of the arguments with which the model is constructed.
        library: functions of the model's library.
    """

    file: ModelFile
    name: str
    settings: Mapping[str, Any]
    arguments: Mapping[str, Any]
    library: Library

    @property
    def loss(self) -> Callable[..., Any]:
        """The function `(model, batch) -> number` that returns the loss."""
        return _function(self.file, self.settings, "loss")

    @property
    def metrics(self) -> Callable[..., Mapping[str, Any]] | None:
        """The function `(model, batch) -> {name: number}` for metrics besides the loss, or None."""
        return _function(self.file, self.settings, "metrics") if self.settings["metrics"] else None

    @property
    def names(self) -> list[str]:
        """Names of the metrics besides the loss."""
        return [name for direction in DIRECTIONS for name in self.settings[direction]]

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """Mapping from the names of splits to their examples.

        Raises:
            InputError: if an object that a setting names is no data set, or if its examples differ between
                two calls.
        """
        texts = {split: self.settings[split] for split in SPLITS if self.settings[split]}
        examples = {split: _examples(self.file.locator, text, split) for split, text in texts.items()}
        for split, text in texts.items():
            if examples[split].structure != examples["train"].structure:
                raise InputError(
                    f"{self.file.path}: {split}: {text} is nested in another way than {texts['train']}"
                )
        return examples

    def trial(self, first: int = 0) -> dict[str, np.ndarray]:
        """Return TRIAL_EXAMPLES training examples, from the index `first` on, for a trial of the model."""
        split = self.examples["train"].split
        count = examples_in(split)
        return gathered(split, np.arange(first, first + min(TRIAL_EXAMPLES, count)) % count, threads=1)

    def initial(self, seed: int) -> Initial:
        """Return the initial arrays of the model, with parameters that are drawn with a seed."""
        with attributed(self.name or "init", self.file.path):
            return self.library.initial(self, seed)

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Mapping from the names of parameters to roles, which consist of kind and layer.

        If a pattern in the setting `roles` matches the name of a parameter, the pattern gives the kind of the
        parameter. Otherwise the kind follows from the layer or the shape of the parameter.
        """
        initial = self.initial(0)
        kinds = dict(initial.kinds)
        for pattern, kind in self.settings["roles"].items():
            matching = [name for name in initial.parameters if fnmatchcase(name, pattern)]
            if not matching:
                raise InputError(
                    f"roles: {pattern!r} matches no parameter; there are {', '.join(initial.parameters)}"
                )
            kinds |= dict.fromkeys(matching, kind)
        return roles_of({name: value.shape for name, value in initial.parameters.items()}, kinds)


def _function(file: ModelFile, settings: Settings, key: str) -> Any:
    function = file.named(settings[key], key)
    if not callable(function):
        raise InputError(f"{file.path}: {key}: {settings[key]} is no function")
    return function


def require_number(path: Path, name: str, value: Any) -> None:
    """Check that the value of a loss or a metric is one number, as an array of the library.

    Raises:
        InputError: if the value is no array, or an array with axes.
    """
    shape = getattr(value, "shape", None)
    if shape is None or tuple(shape):
        described = (
            f"{type(value).__name__}, which is no array"
            if shape is None
            else f"an array of shape {tuple(shape)}"
        )
        raise InputError(f"{path}: {name}: returns {described}; return one number, such as a mean")


def require_metrics(model: UserModel, values: Mapping[str, Any]) -> None:
    """Check that `values` contains the loss and exactly the metrics that settings declare, as numbers.

    Raises:
        InputError: if a metric is missing, not declared, or no number.
    """
    if unequal := {*values} ^ {"loss", *model.names}:
        raise InputError(
            f"{model.file.path}: metrics: {', '.join(sorted(unequal))} is returned or declared, but not "
            "both; name every metric under maximize or minimize"
        )
    for name, value in values.items():
        require_number(model.file.path, name, value)


def _defaults(function: Callable[..., Any], given: Collection[str]) -> dict[str, Any]:
    """Return a mapping from arguments of a class or function to defaults, without the arguments `given`.

    If an argument has no default, or a default that JSON cannot represent, the result has None. Such an
    argument is passed only if a study gives it.
    """
    items = parameters_of(function).items()
    return {name: _plain_or_none(item.default) for name, item in items if name not in given}


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return a mapping from the names of the arguments of a class or function to their definitions."""
    is_class = isinstance(function, type)
    # Inspect `__init__`, because a metaclass may hide the arguments in the signature of the class.
    called = inspect.getattr_static(function, "__init__") if is_class else function
    parameters = [*inspect.signature(called).parameters.values()][is_class:]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {item.name: item for item in parameters if item.kind not in variadic}


def _plain_or_none(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return None


def library_of(locator: str) -> Library:
    """Return the functions for the library of a model. The library is imported."""
    return cast(Library, import_module(f"curvebench.interop.{location(locator).library}_model"))


@cache
def _examples(locator: str, text: str, split: str) -> Examples:
    """Return the examples of a split, after a check that they do not depend on global random generators.

    Raises:
        InputError: if the examples differ between two seeds of the global generators. Every process would
            then train on other data.
    """
    file, library = ModelFile.of(locator), library_of(locator)

    def made(seed: int) -> Examples:
        with global_seed(seed):
            if text.endswith(STORED_DATA):
                return examples_of(loaded(file.path.parent / text), library)
            return examples_of(file.evaluated(text, split), library)

    with attributed(f"{split}: {text}", file.path):
        first, second = made(0), made(1)
        compared = [_compared(examples.split) for examples in (first, second, second)]
    if not all(_equal(compared[0], other) for other in compared[1:]):
        raise InputError(
            f"{file.path}: {split}: {text} gives other data at each call; draw them from a generator "
            "with a seed, such as torch.Generator().manual_seed(0)"
        )
    return first


@cache
def _data_hash(locator: str, text: str, split: str) -> str:
    """Return the SHA-256 of the examples of a split.

    If the split is a data source, only the first examples and the number of examples are hashed.
    """
    examples = _examples(locator, text, split).split
    digest = hashlib.sha256(str(examples_in(examples)).encode())
    for array in _compared(examples):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def store(data: Any, path: Path) -> None:
    """Store the data of a split in a file, which settings such as `train` may name.

    Args:
        data: a data set with a length and an index, a mapping or sequence of arrays, or a single array. The
            first axis of each array counts examples.
        path: path of the file, which ends in `.npz`.
    """
    arrays = _without_data_set(data)
    if _is_data_set(arrays):
        items = [arrays[number] for number in range(len(arrays))]
        if isinstance(items[0], Mapping):
            arrays = {name: np.stack([item[name] for item in items]) for name in items[0]}
        elif isinstance(items[0], Sequence):
            arrays = [np.stack(column) for column in zip(*items, strict=True)]
        else:
            arrays = np.stack(items)
    if isinstance(arrays, Sequence):
        arrays = {f"arr_{number}": array for number, array in enumerate(arrays)}
    named = arrays if isinstance(arrays, Mapping) else {ONLY: arrays}
    np.savez(path, allow_pickle=False, **named)


def loaded(path: Path) -> Any:
    """Return the data in a file that `store` has written: named arrays, a tuple of arrays, or one array."""
    with np.load(path) as file:
        arrays = dict(file)
    if arrays.keys() == {ONLY}:
        return arrays[ONLY]
    unnamed = arrays.keys() == {f"arr_{number}" for number in range(len(arrays))}
    return tuple(arrays.values()) if unnamed else arrays


def examples_of(data: Any, library: Library) -> Examples:
    """Convert a user's data to examples.

    Args:
        data: a data set with a length and an index, or nested arrays whose first axis counts examples.
        library: functions of the model's library.

    Raises:
        TypeError: if `data` is neither a data set nor such arrays, or has no examples.
    """
    data = _without_data_set(data)
    leaves, structure = library.flatten(data)
    if _is_data_set(data):
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise TypeError("is no data set with a length and an index, and no arrays")
        if not len(data):
            raise TypeError("has no examples")
        _, structure = library.flatten(data[0])
        source = _Source(data, library, structure)
        size = sum(array.nbytes for array in source.fetch(0, None).values())
        if size * len(data) > MAX_RESIDENT_BYTES:
            return Examples(source, structure)
        items = [source.fetch(number, None) for number in range(len(data))]
        return Examples({name: np.stack([item[name] for item in items]) for name in items[0]}, structure)
    arrays = _arrays(leaves)
    if len({array.shape[:1] for array in arrays.values()} | {()}) != 2:
        raise TypeError("has arrays whose first axes, which count examples, differ")
    if not examples_in(arrays):
        raise TypeError("has no examples")
    return Examples(arrays, structure)


def _is_data_set(data: Any) -> bool:
    """Return whether data are a data set: examples that are read by their index, such as a list of pairs.

    Otherwise the data are arrays, or nested arrays.
    """
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], tuple | list | Mapping)
    return not isinstance(data, Mapping | Sequence) and not hasattr(data, "dtype")


def _without_data_set(data: Any) -> Any:
    """Return the arrays that a TensorDataset of PyTorch contains; return other data unchanged."""
    return data.tensors if type(data).__name__ == "TensorDataset" else data


@dataclass(frozen=True)
class _Source:
    """A user's data set as a `DataSource`.

    Examples are not augmented, since the data set is used as it is.
    """

    items: Any
    library: Library
    structure: Any
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def fetch(self, number: int, generator: np.random.Generator | None) -> Mapping[str, np.ndarray]:
        leaves, structure = self.library.flatten(self.items[number])
        if structure != self.structure:
            raise TypeError(f"has an example, number {number}, that is nested in another way than the first")
        return _arrays(leaves)

    def placeholder(self, is_training: bool) -> Mapping[str, np.ndarray]:
        return self.fetch(0, None)


def _arrays(leaves: Sequence[Any]) -> dict[str, np.ndarray]:
    """Convert leaves (tensors, arrays or numbers) to arrays, with real numbers in float64.

    The result is a mapping from the index of each leaf, as text, to the array.
    """
    arrays = {str(number): np.asarray(leaf) for number, leaf in enumerate(leaves)}
    if others := [array.dtype.name for array in arrays.values() if array.dtype.kind not in "fiub"]:
        raise TypeError(f"has {others[0]}; examples consist of arrays of numbers")
    return {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()
    }


def _compared(split: Split) -> list[np.ndarray]:
    """Return the arrays by which two data sets are compared.

    These are all arrays, or the first COMPARED_EXAMPLES examples of a data source.
    """
    if isinstance(split, Mapping):
        return list(split.values())
    numbers = range(min(COMPARED_EXAMPLES, len(split)))
    return [array for number in numbers for array in split.fetch(number, None).values()]


def _equal(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True)
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is no text that names something in the model's file")
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("is no list of names of metrics")
    return value


def _kinds(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(kind in KINDS for kind in value.values()):
        raise ValueError(f"is no mapping from names or patterns of parameters to {', '.join(KINDS)}")
    return dict(value)


# Settings that every model has. Names in values of settings refer to the file of the model.
SETTINGS = {
    "loss": Setting("loss", "name of the loss in the model's file, (model, batch) -> number", _text),
    "train": Setting(
        "", "training data: a name in the model's file, a call such as Data(2000), or a file.npz", _text
    ),
    "validation": Setting("", "validation data, like train", _text),
    "test": Setting("", "test data, like train", _text),
    "metrics": Setting("", "name of the function (model, batch) -> {name: number}", _text),
    "maximize": Setting([], "metrics of which more is better", _names),
    "minimize": Setting([], "metrics of which less is better", _names),
    "roles": Setting(
        {}, "kinds of parameters by name or pattern, such as {'*.embed.weight': embedding}", _kinds
    ),
    "batch_size": Setting(32, "examples in a minibatch; null: full batch", whole(1, "full batch")),
    "evaluated_at_once": Setting(EVALUATED_AT_ONCE, "examples in an evaluation call", whole(1)),
}


@cache
def model_workload(locator: str) -> Workload:
    """Return the workload of a model. `Workload.at` binds the workload to settings.

    Args:
        locator: `torch:path.py:Class`, `jax:path.py:Class`, or `jax:path.py` for a file with functions `init`
            and `loss`.

    Raises:
        InputError: if the file cannot be imported, or does not define the model.
    """
    library, name = library_of(locator), location(locator).name
    file = ModelFile.of(locator)
    defaults = _defaults(*library.constructor(file, name))
    if taken := sorted(defaults.keys() & SETTINGS.keys()):
        raise InputError(
            f"{file.path}: {name}: {', '.join(taken)} is a setting of every model; rename the argument"
        )
    own = {key: Setting(default, f"argument of {name}") for key, default in defaults.items()}

    @cache
    def model(settings: str) -> UserModel:
        values = json.loads(settings)
        arguments = {key: values[key] for key in own if values[key] != own[key].default}
        return UserModel(file, name, values, arguments, library)

    def at(settings: Settings) -> UserModel:
        return model(json.dumps(dict(settings)))

    def initial(settings: Settings, generator: np.random.Generator) -> Initial:
        return at(settings).initial(int(generator.integers(2**63)))

    def problem(settings: Settings, random: Random) -> Problem:
        start = initial(settings, random("parameters"))
        splits = {split: examples.split for split, examples in at(settings).examples.items()}
        return Problem(start.parameters, splits, start.state)

    @cache
    def bound(settings: str) -> Workload:
        model_at = model(settings)
        functions = library.functions(model_at)
        splits = [examples.split for examples in model_at.examples.values()]
        streamed = not all(isinstance(split, Mapping) for split in splits)
        at_once = model_at.settings["evaluated_at_once"]
        return replace(
            unbound,
            metrics=_metrics(model_at.settings),
            loss=functions.loss,
            evaluate=functions.evaluate,
            noise=_seeds if functions.draws else None,
            mapped=functions.mapped,
            streamed=streamed,
            evaluation_batch=at_once if streamed or max(map(examples_in, splits)) > at_once else None,
        )

    def check(settings: Settings) -> None:
        _check(file, settings)
        require_batch(settings, examples_in(at(settings).examples["train"].split))

    unbound = Workload(
        name=(name or file.path.stem).lower(),
        description=f"{name or 'a model'} of {file.path.name}",
        source=locator,
        metrics={},
        settings={**SETTINGS, **own},
        dtype="float32",
        shared_data=True,
        roles=lambda settings: at(settings).roles,
        problem=problem,
        sample_parameters=lambda settings, generator: initial(settings, generator).parameters,
        shapes=lambda settings: {
            key: array.shape for key, array in at(settings).initial(0).parameters.items()
        },
        loss=_unbound,
        evaluate=_unbound,
        check=check,
        data_hashes=lambda settings: {
            split: _data_hash(locator, settings[split], split) for split in SPLITS if settings[split]
        },
        backend=MODELS[location(locator).library],
        bind=lambda settings: bound(json.dumps(dict(settings))),
    )
    return unbound


def _metrics(settings: Settings) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for split in (split for split in SPLITS if settings[split]):
        metrics[f"{split}_loss"] = Metric(f"loss on all examples of {settings[split]}", "minimize")
        for direction in DIRECTIONS:
            for name in settings[direction]:
                metrics[f"{split}_{name}"] = Metric(f"{name} on all examples of {settings[split]}", direction)
    return metrics


def _check(file: ModelFile, settings: Settings) -> None:
    """Check settings before data are created and the model is constructed.

    Raises:
        ValueError: if the training data are missing, if a metric is called `loss`, or if metrics have no
            direction or no function.
    """
    if not settings["train"]:
        raise ValueError("train: is missing; name the training data in the model's file")
    declared = [name for direction in DIRECTIONS for name in settings[direction]]
    if "loss" in declared:
        raise ValueError("metrics: loss is the name of the loss; call the metric otherwise")
    if bool(declared) != bool(settings["metrics"]):
        raise ValueError(
            "metrics: name the function that returns them, and each metric under maximize or minimize"
        )
    for name in ("loss", *filter(settings.get, ["metrics"])):
        _function(file, settings, name)


def _seeds(settings: Settings, generator: np.random.Generator, batch_size: int) -> dict[str, np.ndarray]:
    """Draw the seeds of a step, (batch_size, 2).

    A loss that draws random numbers uses the first seed of its batch. There is a seed for each example, so
    that the microbatches of an accumulated gradient have different first seeds.
    """
    return {SEEDS: generator.integers(2**31, size=(batch_size, 2), dtype=np.int64)}


def _unbound(*arguments: Any) -> Any:
    raise RuntimeError("bind the workload to settings first (Workload.at)")
