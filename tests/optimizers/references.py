"""The battery's table: every rule with its hyperparameters, its plain loop, its oracles and its traits.

How a rule joins:

1. A loop in its family's file in `families/`, `loop(leaf, hyper, **options)`, which yields the leaf's
   parameters after each step in float64. It is written from the source, by another way than the rule where
   there is one.
2. An entry in `ENTRIES` there for the defaults of its options, named like the rule, with every hyperparameter
   away from its default, so that none can be ignored. Further entries, `rule: what differs`, until each
   option is away from its default in one of them; the loop is given all options.
3. An oracle, beside the loop, where PyTorch or Optax has the same algorithm, with the settings that make it
   so; PyTorch's where both have.
   A rule for the layers of a model has the `shapes` and `kinds` of one.
4. Its traits: what a change of coordinates does, the values at which a zero gradient moves nothing, and those
   at which the scale of gradients does not matter.
5. A row of `test_defaults.py` with the defaults of its hyperparameters and their source.

`test_rules.py` and `test_equivariance.py` run over the table, and a registered rule without an entry fails.
What is said of one rule alone, such as a closed form, has a file of its own (`test_shampoo.py`).
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
