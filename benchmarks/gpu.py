"""Time training steps of whole networks and the cost of optimizers: `python -m benchmarks.gpu`.

The steps are compared with plain loops of PyTorch and JAX, as a user would write them. The command requires
torch, JAX, Optax, torchvision and timm in the pinned or similar versions, and none of the packages that only
plans and reports use. Without a GPU, it times small networks on one CPU thread and says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.backends.engine import engine
from curvebench.benchmarks.networks_at_speed import LARGE, NETWORKS, SMALL, TimedNetwork
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.optimizers.rule import Rule
from curvebench.steps.engine import Engine
from curvebench.timing.clocks import one_thread, seconds_of
from curvebench.timing.interleaving import interleaved
from curvebench.timing.step_times import NULL

# Steps in one call of a loop: one whole cycle of the optimizers that refresh every 10 steps.
STEPS_PER_CALL = 10
# Number of timed calls of each plain loop, of which the shortest counts.
# The fastest plain loop becomes the peer, with which this project's loop is compared.
SELECTION_CALLS = 3
# Number of rows of the square matrices whose product is timed, to measure the arithmetic rate of a precision.
RATE_MATRIX_ROWS = {"gpu": 8192, "cpu": 1024}
HALF_ITERATION = {"newton_schulz_precision": "bfloat16"}
# By the name in the table: the rule, its options, and whether the parameters are in a changed basis.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    "adamw": ("adamw", {}, False),
    "muon": ("muon", HALF_ITERATION, False),
    "soap": ("soap", {"refresh_every": 10}, False),
    "shampoo": ("shampoo", {"refresh_every": 10}, False),
    "adamw @ egop": ("adamw", {}, True),
}


@dataclass(frozen=True)
class Ready:
    """Training loop that is compiled and has run once.

    Args:
        run: function that runs `STEPS_PER_CALL` steps, and returns when the device has finished them.
        compile_seconds: duration of compilation and of the first call.
        alive_bytes: bytes of the arrays that exist between steps, without the data.
        peak_bytes: maximum bytes of arrays during a call, without the data, as counted by the backend; None
            if the backend does not count.
    """

    run: Callable[[], None]
    compile_seconds: float
    alive_bytes: int
    peak_bytes: int | None


# --- this project's training loop -----------------------------------------------------------------


def alive_bytes(backend: str, device: str = "cpu") -> int:
    """Return the total bytes of all arrays of a backend that now exist on a device."""
    gc.collect()
    if backend == "jax":
        import jax

        return sum(array.nbytes for array in jax.live_arrays())
    import torch

    if device != "cpu":
        return int(torch.cuda.memory_allocated())
    tensors = [tensor for tensor in gc.get_objects() if type(tensor) in (torch.Tensor, torch.nn.Parameter)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def our_loop(
    network: TimedNetwork, runtime: Engine, rule: Rule, batch_size: int, in_basis: bool = False
) -> Ready:
    """Compile the project's own training loop for an update rule.

    The function must be called inside the engine's context.

    Args:
        network: the network and its images.
        runtime: engine of the backend and precision.
        rule: the update rule.
        batch_size: images per step.
        in_basis: whether the parameters of each layer are in a changed basis, as with EGOP.
    """
    bundle = network.bundle(rule, batch_size, STEPS_PER_CALL, in_basis)
    baseline = alive_bytes(runtime.ops.backend, runtime.device)
    loaded = load(bundle, runtime)
    carry, constants = loaded.carry, loaded.constants
    inputs = segment_inputs(bundle, runtime, 0, STEPS_PER_CALL)
    start = time.perf_counter()
    segment = runtime.segment(loaded, inputs)
    del loaded
    carries = [carry]
    del carry

    def run() -> None:
        carries[0] = segment(carries[0], constants, inputs)
        runtime.synchronize(carries[0])

    run()
    seconds = time.perf_counter() - start
    data = sum(runtime.state_bytes(arrays) for arrays in (constants.data, inputs.order))
    peak = runtime.device_peak(segment, run)
    alive = alive_bytes(runtime.ops.backend, runtime.device) - baseline - data
    # XLA counts only the arrays of this loop, not other arrays that exist at the same time.
    excluded = data if runtime.ops.backend == "jax" else baseline + data
    return Ready(run, seconds, alive, None if peak is None else peak - excluded)


# --- training loops of PyTorch and JAX ------------------------------------------------------------


# Plain loops of PyTorch: whether the module is compiled, and whether channels are the last axis in memory.
TORCH_FORMS = {
    "eager": (False, False),
    "channels last": (False, True),
    "compiled": (True, False),
    "compiled channels last": (True, True),
}


def plain_torch(
    network: TimedNetwork,
    runtime: Engine,
    precision: str,
    batch_size: int,
    compiled: bool,
    channels_last: bool,
) -> Ready:
    """Compile the AdamW training loop that a user of PyTorch would write.

    Args:
        network: the network and its images.
        runtime: engine whose device is used and synchronized.
        precision: `mixed` uses autocast, `bfloat16` converts model and images.
        batch_size: images per step.
        compiled: whether to compile the module with torch.compile.
        channels_last: whether to use PyTorch's memory format with channels last.
    """
    import torch
    from torch.nn import functional

    device = runtime.device
    baseline = alive_bytes("torch", device)
    model = network.module().to(device)
    if precision == "bfloat16":
        model = model.bfloat16()
    form = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=form)
    pixels, labels = network.images(2 * batch_size)
    images = torch.tensor(pixels, device=device).to(memory_format=form)
    if precision == "bfloat16":
        images = images.bfloat16()
    targets = torch.tensor(labels, device=device)
    data = images.untyped_storage().nbytes() + targets.untyped_storage().nbytes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    orders = torch.randint(0, len(labels), (STEPS_PER_CALL, batch_size), device=device)
    called = torch.compile(model) if compiled else model

    def run() -> None:
        for order in orders:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=precision == "mixed"):
                loss = functional.cross_entropy(called(images[order]), targets[order])
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        runtime.synchronize(None)

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    peak, excluded = runtime.device_peak(called, run), baseline + data
    alive = alive_bytes("torch", device) - excluded
    return Ready(run, seconds, alive, None if peak is None else peak - excluded)


def plain_jax(network: TimedNetwork, runtime: Engine, batch_size: int, optimizer: Any = None) -> Ready:
    """Compile the training loop that a user of JAX and Optax would write.

    The function must be called inside the engine's context.

    Args:
        network: the network and its images; the loss is this project's loss.
        runtime: engine of the backend and precision.
        batch_size: images per step.
        optimizer: an optimizer of Optax; None for AdamW.
    """
    import jax
    import optax

    from curvebench.backends.jax_engine import program_bytes

    baseline = alive_bytes("jax")
    problem = network.problem(batch_size)
    params = {
        name: runtime.ops.cast(runtime.ops.asarray(value), runtime.policy.parameters)
        for name, value in problem.parameters.items()
    }
    state = {name: runtime.ops.asarray(value) for name, value in problem.state.items()}
    data = {name: runtime.ops.asarray(value) for name, value in problem.splits["train"].items()}
    orders = np.random.default_rng(1).integers(0, 2 * batch_size, (STEPS_PER_CALL, batch_size))
    optimizer = optimizer or optax.adamw(1e-4, weight_decay=0.0)

    @partial(jax.jit, donate_argnums=0)
    def step(carry: Any, order: Any, data: Any) -> Any:
        params, state, moments = carry
        batch = {name: values[order] for name, values in data.items()}

        def value(params: Any) -> Any:
            loss, new_state, _ = network.classifier.loss(runtime.model_ops, params, state, batch, {})
            return loss, new_state

        with runtime.products():
            (_, state), grads = jax.value_and_grad(value, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), state, moments

    carries = [(params, state, optimizer.init(params))]
    del params, state
    order_arrays = [runtime.ops.asarray(order) for order in orders]

    def run() -> None:
        for order in order_arrays:
            carries[0] = step(carries[0], order, data)
        runtime.synchronize(carries[0])

    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    data_bytes = sum(array.nbytes for array in data.values())
    peak = program_bytes(step.lower(carries[0], order_arrays[0], data).compile())
    return Ready(run, seconds, alive_bytes("jax") - baseline - data_bytes, peak - data_bytes)


def plain_loops(
    network: TimedNetwork, runtime: Engine, precision: str, batch_size: int
) -> Iterator[tuple[str, Callable[[], Ready]]]:
    """Yield the name of each plain loop that applies to a network, and a function that compiles the loop."""
    if runtime.ops.backend == "jax":
        yield "jitted optax", partial(plain_jax, network, runtime, batch_size)
        return
    for name, (compiled, channels_last) in TORCH_FORMS.items():
        if channels_last and network.field != "images":
            continue
        yield name, partial(plain_torch, network, runtime, precision, batch_size, compiled, channels_last)


# --- counting of operations -----------------------------------------------------------------------


def operations(network: TimedNetwork, batch_size: int) -> int:
    """Return the floating point operations of the gradient of one step.

    PyTorch counts the operations of the plain module. The tensors are on the device `meta`, so that nothing
    is computed.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        images = torch.empty(batch_size, network.channels, network.side, network.side)
    model = network.module().to("meta")
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return int(counter.get_total_flops())


def matrix_rate(precision: str, device: str) -> float:
    """Measure the floating point operations per second of torch.matmul with large square matrices."""
    import torch

    torch_engine = engine("torch", "tf32" if precision == "tf32" else "float32", device)
    kind = torch.bfloat16 if precision in ("mixed", "bfloat16") else torch.float32
    rows = RATE_MATRIX_ROWS[device]
    matrix = torch.randn(rows, rows, device=torch_engine.device, dtype=kind)

    def run() -> None:
        torch.matmul(matrix, matrix)
        torch_engine.synchronize(None)

    with torch_engine.context(), torch_engine.products():
        run()
        return 2 * rows**3 / min(seconds_of(run, 3) for _ in range(5))


# --- rows of the table ----------------------------------------------------------------------------


def measured(
    network: TimedNetwork,
    backend: str,
    precision: str,
    device: str,
    batch_size: int,
    repetitions: int,
    optimizers: Sequence[str],
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Yield the table rows of one network, backend and precision.

    The first row compares AdamW with the fastest plain loop. Each further row has the cost of one optimizer:
    the time of its step divided by the time of a step that computes only the gradient.

    Args:
        network: the network and its images.
        backend: jax or torch.
        precision: one of the network's precisions.
        device: gpu or cpu.
        batch_size: images per step.
        repetitions: number of samples of each loop.
        optimizers: keys of `OPTIMIZERS`.
        say: function that reports progress.
    """
    runtime = engine(backend, precision, device)
    entries = sum(map(math.prod, network.network.shapes.values()))
    named = {"network": network.name, "backend": backend, "precision": precision, "batch_size": batch_size}
    adamw = rules()["adamw"]
    with runtime.context():
        say("ours, adamw")
        ours = our_loop(network, runtime, adamw, batch_size)
        times, loops = {}, {}
        for name, make in plain_loops(network, runtime, precision, batch_size):
            say(f"plain, {name}")
            try:
                loops[name] = make()
            except Exception as error:  # another library or its compiler may raise any exception
                say(f"plain, {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            times[name] = min(seconds_of(loops[name].run, 1) for _ in range(SELECTION_CALLS))
        row = {
            **named,
            "measured": "adamw over the fastest plain loop",
            "ours_milliseconds": _milliseconds(min(seconds_of(ours.run, 1) for _ in range(SELECTION_CALLS))),
            "compile_seconds": round(ours.compile_seconds, 1),
            "alive_bytes_a_parameter": round(ours.alive_bytes / entries, 2),
            "peak_bytes": ours.peak_bytes,
            "notes": list(runtime.notes),
        }
        if times:
            fastest = min(times, key=lambda name: times[name])
            peer = loops.pop(fastest)
            loops.clear()
            contest = interleaved(ours.run, peer.run, repetitions)
            rate = matrix_rate(precision, device)
            achieved = operations(network, batch_size) * STEPS_PER_CALL / contest.seconds[0]
            row |= {
                "peer": fastest,
                "plain_milliseconds": {name: _milliseconds(seconds) for name, seconds in times.items()},
                "ratio": _interval(contest.ratio),
                "same": _interval(contest.same),
                "images_a_second": round(batch_size * STEPS_PER_CALL / contest.seconds[0], 1),
                "share_of_matrix_rate": round(achieved / rate, 4),
                "matrix_operations_a_second": float(f"{rate:.3g}"),
                "plain_alive_bytes_a_parameter": round(peer.alive_bytes / entries, 2),
                "plain_peak_bytes": peer.peak_bytes,
            }
            del peer
        yield row
        del ours
        say("the gradient alone")
        null = our_loop(network, runtime, NULL, batch_size)
        for name in optimizers:
            rule, options, in_basis = OPTIMIZERS[name]
            say(f"cost of {name}")
            loop = our_loop(network, runtime, rules()[rule].choose(options), batch_size, in_basis)
            contest = interleaved(loop.run, null.run, repetitions)
            ratios = (contest.ratio.median, contest.ratio.low, contest.ratio.high)
            yield {
                **named,
                "measured": f"cost of {name}",
                "ours_milliseconds": _milliseconds(contest.seconds[0]),
                "percent_of_the_gradient": [round(100 * (ratio - 1), 1) for ratio in ratios],
                "compile_seconds": round(loop.compile_seconds, 1),
                "alive_bytes_a_parameter": round(loop.alive_bytes / entries, 2),
                "peak_bytes": loop.peak_bytes,
            }


def _milliseconds(seconds: float) -> float:
    """Convert the seconds of one call to milliseconds per step, rounded."""
    return round(1e3 * seconds / STEPS_PER_CALL, 3)


def _interval(interval: Any) -> list[float]:
    return [round(value, 3) for value in (interval.median, interval.low, interval.high)]


def machine(device: str) -> dict[str, Any]:
    """Return the name of the device and the versions of Python and packages, which every row contains."""
    import torch

    from curvebench.results.provenance import cpu_model

    name = torch.cuda.get_device_name() if device == "gpu" else f"{cpu_model()}, one thread"
    versions = {package: version(package) for package in ("torch", "jax", "optax", "torchvision", "timm")}
    return {"device": name, "python": sys.version.split()[0], **versions}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="Time whole steps beside plain loops, on a GPU or a CPU."
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), help="a GPU where there is one")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="large on a GPU, small on a CPU")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    precisions = list(dict.fromkeys(word for network in NETWORKS.values() for word in network.precisions))
    parser.add_argument(
        "--precisions", nargs="+", choices=precisions, help="of those that each network is timed in"
    )
    parser.add_argument("--optimizers", nargs="*", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--batch-size", type=int, help="128 on a GPU, 32 on a CPU")
    parser.add_argument("--repetitions", type=int, default=9, help="samples of each (9); from 6 on 95 %%")
    appends = "append rows here; a network, backend and precision that it has is not timed again"
    parser.add_argument("--out", type=Path, metavar="FILE", help=appends)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print one line of JSON per row."""
    parser = _parser()
    options = parser.parse_args(arguments)
    began = time.monotonic()
    import torch

    if options.device == "gpu" and not torch.cuda.is_available():
        parser.error("--device gpu: PyTorch sees no GPU here; leave it out to time small networks on the CPU")
    device = options.device or ("gpu" if torch.cuda.is_available() else "cpu")
    if device == "cpu" and options.device is None:
        print("no GPU is here: small networks on one thread of the processor", file=sys.stderr)
    networks = [NETWORKS[name] for name in options.networks or ()] or (LARGE if device == "gpu" else SMALL)
    batch_size = options.batch_size or (128 if device == "gpu" else 32)
    stored = options.out.read_text().splitlines() if options.out and options.out.is_file() else []
    done = {(row["network"], row["backend"], row["precision"]) for row in map(json.loads, stored)}
    parts = [
        (network, backend, precision)
        for network in networks
        for precision in network.precisions
        if precision in (options.precisions or network.precisions)
        for backend in options.backends
        if (network.name, backend, precision) not in done
    ]
    sizes = (device, batch_size, options.repetitions, options.optimizers)
    with one_thread() if device == "cpu" else nullcontext():
        for network, backend, precision in parts:
            lines = []
            say = partial(_say, f"{network.name} {backend} {precision}", began)
            for row in measured(network, backend, precision, *sizes, say):
                lines.append(json.dumps({**row, "machine": machine(device)}) + "\n")
                print(lines[-1], end="", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.writelines(lines)


def _say(part: str, began: float, step: str) -> None:
    print(f"{time.monotonic() - began:6.0f} s  {part}: {step}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
