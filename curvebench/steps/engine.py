"""Interface of an engine, which executes programs with the library of a backend.

An engine provides automatic differentiation, mapping over lanes (the runs of a bundle, which are computed
together), compilation, and transfers between host and device. `curvebench.backends` implements the interface
for JAX and PyTorch; `curvebench.engine` runs bundles with it.

A segment is a number of consecutive steps that one call of a compiled function computes. The carry is the
state that steps change: parameters, optimizer state and model state.
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


# Compiled function that computes consecutive steps of all lanes, and returns the carry after the last step.
Segment = Callable[[Carry, Constants, Inputs], Carry]


def multiplications(loaded: Loaded, inputs: Inputs, steps: int | None) -> float:
    """Estimate the computation of a bundle: steps x examples of a minibatch x parameters x lanes.

    From this number of multiplications, an engine decides whether compilation is worth its time.

    Args:
        loaded: the bundle on its device, whose carry shows the numbers of lanes and parameters.
        inputs: inputs of one or more steps, whose arrays show the size of a minibatch.
        steps: number of steps of the run. With None, if the number is not known, the result is infinite.
    """
    if steps is None:
        return math.inf
    minibatch = inputs.order if inputs.batch is None else next(iter(inputs.batch.values()))
    full_batch = None if minibatch is not None else next(iter(loaded.constants.data.values()))
    examples = minibatch.shape[2] if full_batch is None else max(full_batch.shape[:2])
    return float(steps) * examples * math.prod(loaded.carry.coordinates.shape)


class Engine(Derivatives, Protocol):
    """A backend with a device and a precision.

    Methods with a body are defaults, which most backends share.
    """

    tree: Any  # module of the library with functions on nested containers, such as `tree_map_with_path`
    device: str
    policy: Policy
    notes: list[str]  # fallbacks and other facts on how results were computed, for the provenance
    compiles_lanes: bool = True  # whether each number of lanes requires its own compilation
    threads: int  # CPU threads that the engine may use; also the number of threads that load its inputs

    def __init__(self, precision: str, device: str) -> None:
        self.policy, self.device = policy_of(precision), device
        self.notes, self.threads = [], 1

    @property
    def itemsize(self) -> int:
        """Number of bytes that one number takes in the precision in which the engine computes."""
        return np.dtype(self.policy.computed).itemsize

    def note(self, *texts: str) -> None:
        """Add notes to `notes`, without repetitions."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def unbatched(self, function: Function) -> Function:
        return function

    def context(self) -> AbstractContextManager[Any]:
        """Return a context with the library settings of this engine, such as its precision.

        All other methods must be called within this context. On exit the settings are reset, so that one
        process can use two engines.
        """

    def segment(self, loaded: Loaded, inputs: Inputs, steps: int | None = None) -> Segment:
        """Compile the function that computes the steps of a segment for all lanes.

        The function may overwrite the arrays of the carry that it receives. It also accepts a segment with
        fewer steps than `inputs` has. The fields `step` and `schedule` of the segment's inputs, which are
        arrays on the host, are then shorter, and the other arrays are padded.

        Args:
            loaded, inputs: examples of the function's arguments. The function is compiled for their shapes
                and types.
            steps: number of steps of the run, from which the engine decides whether compilation is worth its
                time. None compiles with full effort in any case; 0 compiles with the smallest effort.
        """

    def values_in_segment(self, loaded: Loaded) -> Hashable:
        """Return the hyperparameters that the compiled segment of this bundle contains as constants.

        Bundles with different constants cannot share a compiled segment. The default, no constants, is for
        backends whose segments read all hyperparameters from their arguments.
        """
        return ()

    def compiled(self, function: Function, *arguments: Any, multiplications: float = math.inf) -> Function:
        """Compile a function for the shapes and types of the given arguments.

        Args:
            function: the function.
            arguments: examples of its arguments.
            multiplications: estimated number of multiplications in all calls together, from which the engine
                decides how much effort to spend on compilation.
        """
        return function

    def compile_unbatched(
        self, function: Function, multiplications: float, call: Callable[[], Any], what: str
    ) -> bool:
        """Compile a function of a single run as one graph, if its computation repays the compilation.

        The default compiles nothing. It is for backends that compile the callers of the function as a whole.

        Args:
            function: the function, as `unbatched` or `value_and_grad` has returned it.
            multiplications: estimated number of multiplications in all calls together.
            call: calls the function with arguments that have the shapes and types of the run's arguments, so
                that the function is compiled now.
            what: name of the function in the notes for the provenance.

        Returns:
            Whether the function was compiled.
        """
        return False

    def to_device(self, array: np.ndarray) -> Array:
        """Start to copy an array to the device, and return the copy, in the precision of computation."""
        return self.ops.asarray(array)

    def limit_threads(self, threads: int) -> None:
        """Limit the number of CPU threads of the engine, if the library allows this after its import."""
        self.threads = threads

    def synchronize(self, value: Any) -> None:
        """Wait until the arrays of `value` are computed."""

    def state_bytes(self, state: Any) -> int:
        """Return the size of all arrays in the state of an update rule, in bytes."""

    def to_bits(self, leaf: Any) -> np.ndarray:
        """Copy an array of a carry to the host, bit for bit, in a data type that a NumPy file can contain.

        For example, bfloat16 numbers are copied as 16-bit integers with the same bits.
        """

    def from_bits(self, bits: np.ndarray, like: Any) -> Any:
        """Copy an array back to the device: the inverse of `to_bits`.

        The result has the data type of `like`, and the bits that `to_bits` has returned.
        """

    def carry_to_host(self, carry: Carry) -> dict[str, np.ndarray]:
        """Copy the arrays of a carry to the host bit for bit; return them by their paths in the carry.

        Call this method in the engine's `context`.
        """
        leaves = self.tree.tree_leaves_with_path(carry)
        return {self.tree.keystr(path): self.to_bits(leaf) for path, leaf in leaves if leaf is not None}

    def carry_from_host(self, carry: Carry, arrays: Mapping[str, np.ndarray]) -> Carry:
        """Return a carry with the structure of `carry` and the arrays that `carry_to_host` has returned.

        Call this method in the engine's `context`.

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

        The result is None if the backend does not measure the memory of the device.
        """
