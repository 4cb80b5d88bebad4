"""Small problems on which the steps of optimizers are compared between backends.

The properties of a problem's gradients decide whether backends must take equal steps on the problem.

A parity job compares the steps of an optimizer on PyTorch, JAX and NumPy. An EGOP basis consists of
eigenvectors of the expected gradient outer product. Such a basis is one of the bases (changes of coordinates
of the parameters) in which optimizers can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from curvebench.optimizers.bases import bases
from curvebench.optimizers.rule import Rule
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.workloads import workloads

STEPS = 20
# Largest accepted difference of a parameter array between two backends.
# The difference is divided by the largest absolute entry of the array.
# The limit applies if `ParityProblem.judges` returns true.
# Other differences are reported without a judgement.
TOLERANCE = 1e-10
LEARNING_RATE = 0.01
# Damping of rules for layers, such as K-FAC. Such rules divide by numbers as small as the damping.
# Therefore a smaller damping would enlarge rounding errors.
DAMPING = 0.1
# Epsilon of rules whose default epsilon is 0.
# A positive epsilon keeps the pseudo-inverse of a sum of few gradient outer products well-conditioned.
EPSILON = 1e-4


@dataclass(frozen=True)
class ParityProblem:
    """A small workload in a basis, with the two properties that decide whether backends must agree on it.

    Args:
        label: name in the table of the report.
        description: one line for the report.
        workload: name of the workload.
        settings: settings that differ from the workload's defaults.
        basis: options of an EGOP basis; None for the identity basis.
        full_rank: whether GGᵀ and GᵀG have full rank and distinct eigenvalues for the gradient G of every
            parameter at every step. The property is false if a parameter is a vector, because the gradient is
            then a vector g, and ggᵀ has rank 1. In a null space the eigenvectors are arbitrary, so that
            methods which use eigenvectors may differ between backends.
        free_of_noise: whether every coordinate of a gradient in the basis is either 0 or much larger than
            rounding errors. A coordinate that consists of rounding errors has other digits on each backend,
            and methods that divide by the size of coordinates amplify the difference.
        reason: why `full_rank` or `free_of_noise` is false; empty if both are true.
    """

    label: str
    description: str
    workload: str
    settings: Mapping[str, Any]
    basis: Mapping[str, Any] | None = None
    full_rank: bool = True
    free_of_noise: bool = True
    reason: str = ""

    @property
    def workload_spec(self) -> WorkloadSpec:
        """Specification of the problem's workload, with the values of all settings."""
        return WorkloadSpec(self.workload, workloads()[self.workload].complete(self.settings))

    @property
    def basis_spec(self) -> BasisSpec:
        """Specification of the problem's basis, with the values of all options."""
        if self.basis is None:
            return BasisSpec("identity", "identity")
        return BasisSpec("egop", "egop", bases()["egop"].complete(self.basis))

    def judges(self, rule: Rule) -> bool:
        """Return whether backends must take equal steps with a rule on this problem.

        `free_of_noise` is always required. `full_rank` is not required for a rule that updates each entry of
        a parameter from the gradients of the entry only, because such a rule uses no eigenvectors.
        """
        return self.free_of_noise and (self.full_rank or rule.scope == "entry")


def _linear_network(*widths: int, alpha: float = 0.5) -> dict[str, Any]:
    """Return the settings of a linear network.

    Args:
        widths: widths of the layers, from the input to the output.
        alpha: exponent of the decay of the singular values of the inputs, k^-alpha.
    """
    counts = {"train_examples": 60, "validation_examples": 20, "test_examples": 20, "batch_size": 20}
    return {"widths": list(widths), "alpha": alpha, **counts}


def _in_basis(problem: ParityProblem, gradients: int, samples: str) -> ParityProblem:
    """Return the problem in an EGOP basis.

    Args:
        problem: the problem in the identity basis.
        gradients: number of gradients from which the basis is estimated.
        samples: source of the gradients, as study files name it.
    """
    title = f"the same in the eigenbasis of {gradients} gradients"
    return replace(problem, label=f"{problem.label}, EGOP", description=title, basis={"samples": samples})


def hyperparameters_of(rule: Rule) -> dict[str, float]:
    """Return the hyperparameters with which a rule is compared between backends.

    All values are the rule's defaults, with three exceptions: the learning rate, the damping of a rule for
    layers, and an epsilon whose default is 0.
    """
    epsilon = rule.hyperparameters.get("epsilon")
    changed = {"epsilon": EPSILON} if epsilon is not None and epsilon.default == 0 else {}
    changed |= {"damping": DAMPING} if rule.for_model and "damping" in rule.hyperparameters else {}
    return rule.complete({"learning_rate": LEARNING_RATE, **changed})


VECTOR = "the gradient g of a vector makes a ggᵀ of rank 1"
NOT_SQUARE = "no weight is square, so that one of GGᵀ and GᵀG has a null space"

LEAST_SQUARES = ParityProblem(
    "least squares",
    "12 equations for 8 unknowns",
    "least_squares",
    {"n": 12, "d": 8},
    full_rank=False,
    reason=VECTOR,
)
LINEAR_NETWORK = ParityProblem(
    "linear network",
    "weights of 6 by 4, 5 by 6 and 3 by 5, batches of 20 examples",
    "linear_network",
    _linear_network(4, 6, 5, 3),
    full_rank=False,
    reason=NOT_SQUARE,
)
PROBLEMS = (
    LEAST_SQUARES,
    _in_basis(LEAST_SQUARES, 80, "10.0 d"),
    ParityProblem(
        "logistic regression",
        "20 examples of 3 features",
        "logistic_regression",
        {"n": 20, "d": 3},
        full_rank=False,
        reason=VECTOR,
    ),
    ParityProblem(
        "square linear network",
        "two weights of 3 by 3, batches of 20 examples",
        "linear_network",
        # The relative error of an inverse root of M = GGᵀ is about the rounding unit times cond(M).
        # The condition number cond(M) is 3e3 with these settings, and 4e5 at 5 by 5 with alpha 0.5.
        _linear_network(3, 3, 3, alpha=0.0),
    ),
    ParityProblem(
        "wide least squares, EGOP",
        "5 equations for 8 unknowns, in the eigenbasis of 80 gradients",
        "least_squares",
        {"n": 5, "d": 8},
        {"samples": "10.0 d"},
        full_rank=False,
        free_of_noise=False,
        reason="every gradient lies in 5 of 8 dimensions, and its other 3 coordinates are rounding noise",
    ),
    LINEAR_NETWORK,
    _in_basis(LINEAR_NETWORK, 345, "5.0 d"),
    ParityProblem(
        "digits network",
        "ReLU network 64-32-10, batches of 50 images",
        "digits_mlp",
        {"batch_size": 50},
        full_rank=False,
        reason="no weight is square, and some pixels are blank in every image: their columns of G are 0",
    ),
)
# The problems on which every optimizer is compared.
# An optimizer in a study of the report is compared on all `PROBLEMS`.
CORE = tuple(problem for problem in PROBLEMS if problem.label in ("least squares", "square linear network"))
