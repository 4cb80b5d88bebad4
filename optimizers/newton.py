"""Newton's method: the gradient multiplied by the inverse of the Hessian, with optional damping.

In formulas, w is the vector of all parameters, g its gradient, H the Hessian of the loss, and eta the
learning rate.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.gradient_descent import SGD, Empty
from curvebench.optimizers.needs import HESSIAN
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule


def _update(ops: Ops, grad: Array, state: Empty, param: Array, hyper: Hyper) -> tuple[Array, Empty]:
    """Do a step of Newton's method: w <- w - eta (H + damping I)^(-1) g (002 eq. 57, Sec. A.2).

    The result is not finite if H + damping I is singular.
    """
    damping = hyper["damping"][..., None] * ops.eye(param.shape[-1])
    direction = ops.solve(hyper["hessian"] + damping, grad[..., None])[..., 0]
    return param - hyper["learning_rate"] * direction, state


NEWTON = Rule(
    name="newton",
    source="002 eq. 57, Sec. A.2",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "damping": Hyperparameter("times the identity, added to the Hessian; 0 is legal", 0.0, 0.0),
    },
    init=SGD.init,
    update=_update,
    scope="model",
    needs=(HESSIAN,),
)

RULES = (NEWTON,)
