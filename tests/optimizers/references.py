"""Table of the battery: every rule with its hyperparameters, its plain loop, its oracles and its traits.

To add a rule:

1. Write a loop in its family's file in `families/`, `loop(leaf, hyper, **options)`, which yields the leaf's
   parameters after each step in float64. Write it from the source, in another way than the rule if possible.
2. Add an entry to `ENTRIES` there for the default options, with the name of the rule. No hyperparameter may
   have its default, so that none can be ignored. Add further entries, `rule: what differs`, until every
   option differs from its default in one of them; the loop gets all options. A rule for the layers of a model
   needs the `shapes` and `kinds` of a model.
3. If PyTorch or Optax has the same algorithm, add an oracle with the necessary settings next to the loop. If
   both have it, use PyTorch's.
4. Add its traits: the symmetry of its path, the values at which a zero gradient moves nothing, and the values
   at which the scale of gradients does not matter.
5. Add a row to `test_defaults.py`, with the defaults of its hyperparameters and their source.

`test_rules.py` and `test_equivariance.py` run over the table, and a registered rule without an entry fails.
Properties of a single rule, such as a closed form, are tested in a separate file (`test_shampoo.py`).
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

from tests.optimizers import families
from tests.optimizers.entry import Entry

BATTERY: dict[str, Entry] = {
    label: replace(entry, optimizer=label.partition(":")[0])
    for info in pkgutil.iter_modules(families.__path__, f"{families.__name__}.")
    for label, entry in importlib.import_module(info.name).ENTRIES.items()
}
