"""Interface of an engine, which executes programs with the library of a backend.

An engine provides automatic differentiation, mapping over lanes, compilation, and transfers between host and
device. `curvebench.backends` implements it for JAX and PyTorch; `curvebench.engine` runs bundles with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from curvebench.arrays.ops import Array
from curvebench.precision import Policy, policy_of
from curvebench.steps.derivatives import Derivatives, Function
from curvebench.steps.program import Carry, Constants, Inputs, Loaded

NO_GPU = (
    "device: gpu: {library} sees no GPU on this machine; give device: cpu in the study's scale, or install "
    "the CUDA build (README)"
)


# A compiled function that takes the steps of a segment, one after another, for all lanes.
Segment = Callable[[Carry, Constants, Inputs], Carry]


def multiplications(loaded: Loaded, inputs: Inputs, steps: int | None) -> float:
    """Estimate the work of a run: steps x examples of a minibatch x parameters, summed over all lanes.

    Args:
        inputs: the inputs of a segment, which give the size of a minibatch.
        steps: number of steps of the run; None if it is not known, which makes the work infinite.
    """
    if steps is None:
        return math.inf
    minibatch = inputs.order if inputs.batch is None else next(iter(inputs.batch.values()))
    full_batch = None if minibatch is not None else next(iter(loaded.constants.data.values()))
    examples = minibatch.shape[2] if full_batch is None else max(full_batch.shape[:2])
    return float(steps) * examples * math.prod(loaded.carry.coordinates.shape)


class Engine(Derivatives, Protocol):
    """A backend with a device and a precision. Methods with a body are defaults that most backends share."""

    tree: Any  # functions of the library for nested containers, such as `tree_map_with_path`
    device: str
    policy: Policy
    notes: list[str]  # fallbacks that the engine used, each by name, for the provenance of the results
    compiles_lanes: bool = True  # whether a segment is compiled for the number of its lanes
    threads: int  # CPU threads that the engine may use; as many threads load its inputs

    def __init__(self, precision: str, device: str) -> None:
        self.policy, self.device = policy_of(precision), device
        self.notes, self.threads = [], 1

    @property
    def itemsize(self) -> int:
        """Bytes of a number in the precision of computation."""
        return np.dtype(self.policy.computed).itemsize

    def note(self, *texts: str) -> None:
        """Add notes to `notes`, without repetitions."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def unbatched(self, function: Function) -> Function:
        return function

    def context(self) -> AbstractContextManager[Any]:
        """Return a context with the library settings that all other methods need, such as precision.

        The settings are reset on exit, so that two engines can be used in one process.
        """

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        """Compile the function that takes the steps of a segment for all lanes.

        The function may overwrite the arrays of the carry that it receives. It also accepts a segment with
        fewer steps than `inputs`: then `step` and `schedule` (arrays of the host) are shorter, and the other
        arrays are padded.

        Args:
            loaded, inputs: examples of its arguments, whose shapes and types it is compiled for.
            steps: number of steps of the run, by which the engine decides whether compilation is worth its
                time; None to always compile with full effort, 0 to compile with the least.
        """

    def values_in_segment(self, loaded: Loaded) -> Hashable:
        """Return the hyperparameters that a segment contains as constants.

        Bundles with different values need different segments. A segment that reads hyperparameters from its
        arguments contains none, which is the default.
        """
        return ()

    def compiled(self, function: Function, *arguments: Any, multiplications: float = math.inf) -> Function:
        """Compile a function for arguments of these shapes and types.

        Args:
            multiplications: estimated work of all calls together, by which the engine decides whether to
                compile.
        """
        return function

    def compile_unbatched(
        self, function: Function, multiplications: float, call: Callable[[], Any], what: str
    ) -> bool:
        """Compile a function of a single run as one graph, if its work is worth the time of compilation.

        By default nothing is compiled here, for backends that compile the caller as a whole.

        Args:
            function: the result of `unbatched` or `value_and_grad`.
            multiplications: estimated work of all its calls together.
            call: calls the function with arguments like the run's, so that it is compiled now.
            what: name of the function in the notes for the provenance.

        Returns:
            Whether the function was compiled.
        """
        return False

    def to_device(self, array: np.ndarray) -> Array:
        """Start to copy an array to the device, with real numbers in the precision of computation."""
        return self.ops.asarray(array)

    def limit_threads(self, threads: int) -> None:
        """Limit the CPU threads of the engine, as far as the library allows it after its import."""
        self.threads = threads

    def synchronize(self, value: Any) -> None:
        """Wait until the arrays of `value` are computed."""

    def state_bytes(self, state: Any) -> int:
        """Return the size of all arrays in the state of a rule, in bytes."""

    def to_bits(self, leaf: Any) -> np.ndarray:
        """Copy a leaf of a carry to the host, bit for bit: a NumPy file cannot contain bfloat16 numbers."""

    def from_bits(self, bits: np.ndarray, like: Any) -> Any:
        """Return the leaf on the device from which `to_bits` returned `bits`; it has the type of `like`."""

    def carry_to_host(self, carry: Carry) -> dict[str, np.ndarray]:
        """Copy the arrays of a carry to the host bit for bit, by their path in it. Call it in the context."""
        leaves = self.tree.tree_leaves_with_path(carry)
        return {self.tree.keystr(path): self.to_bits(leaf) for path, leaf in leaves if leaf is not None}

    def carry_from_host(self, carry: Carry, arrays: Mapping[str, np.ndarray]) -> Carry:
        """Return a carry like `carry` with the arrays of `carry_to_host`. Call it in the context.

        Raises:
            KeyError, ValueError: if the names, shapes or types of `arrays` do not match the carry.
        """

        def restore(path: Any, like: Any) -> Any:
            if like is None:
                return None
            name = self.tree.keystr(path)
            expected, stored = self.to_bits(like), arrays[name]
            if (expected.shape, expected.dtype) != (stored.shape, stored.dtype):
                raise ValueError(f"{name} is {stored.dtype} of shape {stored.shape}")
            return self.from_bits(stored, like)

        return self.tree.tree_map_with_path(restore, carry)

    def device_peak(self, segment: Callable[..., Any], run: Callable[[], None]) -> int | None:
        """Call `run`, which calls `segment`, and return the peak memory of arrays on the device in bytes.

        Returns None if the backend does not count them on this device.
        """
