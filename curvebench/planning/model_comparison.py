"""Comparisons of optimizers on a user's model: studies that `curvebench compare` writes.

All methods get the same problem, learning-rate schedule, seeds and number of settings for each tuned
hyperparameter. A setting is a value for each tuned hyperparameter. Two rounds of a tree-structured Parzen
estimator tune three hyperparameters: the learning rate; the weight decay of methods with decoupled weight
decay; and the learning rate of the fallback, the rule with which methods such as Muon update vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvebench.interop.files import FILE, imported_names
from curvebench.interop.models import IMPORTED, is_model
from curvebench.paths import COMPARISONS
from curvebench.planning.config import Config, config_of_study
from curvebench.planning.submission import located
from curvebench.registry import find_rule, find_workload
from curvebench.results.temporary import write_texts
from curvebench.spec.errors import InputError
from curvebench.spec.method import LIBRARIES
from curvebench.spec.study import in_letters, parsed_yaml

HEAD = "# Optimizers on one model, written by curvebench compare.\n"
SCALE = "quick"  # the default scale of commands, so that a comparison can be named without a scale
# Methods of a comparison for which the user names no methods.
# If time is short, the last methods in this list are left out first.
OPTIMIZERS = (
    "adamw",
    "muon",
    "soap",
    "adam",
    "momentum",
    "lion",
    "shampoo",
    "adam_atan2",
    "adafactor",
    "rmsprop",
)
# Possible numbers of settings for each tuned hyperparameter; a smaller number if time is short
TRIALS = (8, 6, 4)
EVALUATIONS = 10  # largest number of evaluations of a run, without the first evaluation
WARMUP = 0.05  # share of the steps in which the learning rate rises
SPACE = {
    "learning_rate": {"low": 1e-5, "high": 10.0, "scale": "log"},
    "weight_decay": {"low": 1e-4, "high": 1.0, "scale": "log"},
    "others_ratio": {"low": 1e-3, "high": 10.0, "scale": "log"},
}


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison that `curvebench compare` runs.

    Args:
        model: locator of the model, such as `torch:/home/me/my_gru.py:GRU`.
        settings: settings of the model's workload that differ from the defaults.
        optimizers: optimizers with their options, in the form of the key `optimizers` of a study file.
        steps: number of steps of a run.
        label: name of the study and of its only workload.
        judged_by: metric by which methods are tuned and ranked. Empty for the loss on the validation data,
            or, if the model has no validation data, for the loss on the training data.
        schedule: name of the learning-rate schedule.
        trials: number of settings for each tuned hyperparameter of a method, one half in each of two rounds.
        tuning_seeds: number of seeds of the runs that tune a method.
        final_seeds: number of seeds of the runs that judge a method.
    """

    model: str
    settings: Mapping[str, Any]
    optimizers: tuple[Any, ...]
    steps: int
    label: str
    judged_by: str = ""
    schedule: str = "cosine"
    trials: int = TRIALS[0]
    tuning_seeds: int = 3
    final_seeds: int = 5

    @property
    def metric(self) -> str:
        """Name of the metric by which methods are tuned and ranked."""
        return self.judged_by or f"{'validation' if self.settings.get('validation') else 'train'}_loss"

    @property
    def study(self) -> dict[str, Any]:
        """Content of the comparison's study file: keys and values."""
        backend = find_workload(self.model).backend
        return {
            "question": f"Which optimizer trains {self.label} best in {self.steps} steps?",
            "source": self.model.partition(":")[2],
            "workloads": [{self.model: {**self.settings, "label": self.label}}],
            "optimizers": [_with_space(entry) for entry in self.optimizers],
            "tuning": {
                "protocol": "tpe",
                "budget_per_dimension": self.trials,
                "at_once": self.trials // 2,
                "space": {"learning_rate": SPACE["learning_rate"]},
                "choose": f"median final {self.metric}",
                "shared_across": "none",
            },
            "schedule": {"name": self.schedule, "warmup": WARMUP},
            "compare": {"metric": f"final {self.metric}"},
            "scales": {
                SCALE: {
                    "steps": self.steps,
                    "evaluations": self.evaluations,
                    "evaluated_splits": [self.metric.partition("_")[0]],
                    "seeds": {"tuning": self.tuning_seeds, "final": self.final_seeds},
                    "backends": {backend: {}},
                }
            },
        }

    @property
    def evaluations(self) -> int:
        """Number of evaluations of a run. This number is a divisor of the number of steps."""
        return max(count for count in range(1, EVALUATIONS + 1) if self.steps % count == 0)

    def write(self, results: Path) -> Path:
        """Write the comparison's study file to a folder of its own in the results folder.

        Returns:
            The path of the study file.
        """
        path = study_file(self.label, results)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, self.study)
        return path


def study_file(label: str, results: Path) -> Path:
    """Return the path of the study file of a comparison."""
    return results / COMPARISONS / label / f"{label}.yaml"


def config(label: str, results: Path) -> Config:
    """Return the configuration of Snakemake that runs the comparison with the given label."""
    return config_of_study(study_file(label, results), SCALE, results)


def add_seeds(label: str, results: Path, count: int) -> None:
    """Add final seeds to a comparison's study file, so that one more job of each method makes the new runs.

    Args:
        label: label of the comparison.
        results: the results folder.
        count: new total number of final seeds.

    Raises:
        InputError: if there is no such comparison, or the comparison has more than `count` final seeds.
    """
    path = study_file(label, results)
    if not path.exists():
        known = sorted(folder.name for folder in path.parents[1].glob("*") if folder.is_dir())
        raise InputError(f"{label}: there is no such comparison in {path.parents[1]} ({', '.join(known)})")
    study = parsed_yaml(str(path), path.read_text())
    seeds = study["scales"][SCALE]["seeds"]
    present, batches = seeds["final"], seeds.get("batches") or [seeds["final"]]
    if count < present:
        raise InputError(f"--seeds: {label} has {present} final seeds already; give a larger number")
    if count > present:
        seeds |= {"final": count, "batches": [*batches, count - present]}
    _write(path, study)


def _write(path: Path, study: Mapping[str, Any]) -> None:
    write_texts({path: f"{HEAD}{json.dumps(study, indent=1)}\n"})


def locator_of(file: str, name: str) -> str:
    """Return the locator of a model, with the absolute path of its file.

    Args:
        file: `my_gru.py`, `my_gru.py:GRU`, or a locator with the prefix `torch:` or `jax:`.
        name: name of the model in the file; empty if `file` contains the name after a colon, or if the file
            defines functions `init` and `loss`.

    Raises:
        InputError: if there is no such file, or if `file` names no library and the file imports neither or
            both of PyTorch and JAX.
    """
    library, _, rest = file.partition(":") if is_model(file) else ("", "", file)
    match = FILE.fullmatch(rest)
    if match is None:
        raise InputError(f"{file}: is no Python file, such as my_gru.py")
    path = Path(match["path"]).resolve()
    if not path.is_file():
        raise InputError(f"{file}: there is no such file")
    item = name or match["item"] or ""
    if not library:
        imported = {name.partition(".")[0] for name in imported_names(path, "")}
        libraries = [library for library, packages in IMPORTED.items() if packages & imported]
        if len(libraries) != 1:
            which = "both torch and jax" if libraries else "neither torch nor jax"
            raise InputError(f"{file}: imports {which}; write torch:{file} or jax:{file}")
        (library,) = libraries
    return f"{library}:{path}:{item}" if item else f"{library}:{path}"


def entries(optimizers: Sequence[str]) -> tuple[Any, ...]:
    """Return the optimizers that a user names, in the form of the key `optimizers` of a study file.

    Args:
        optimizers: names as in a study file, or classes in files, such as `my.py:Lion`; empty for the
            optimizers in `OPTIMIZERS`.
    """
    return tuple(_entry(name) for name in optimizers or OPTIMIZERS)


def _entry(name: str) -> Any:
    locator = located(name)
    label = find_rule(locator).name
    return locator if label == locator else {locator: {"label": in_letters(label)}}


def _with_space(entry: Any) -> Any:
    """Return an entry of a study's optimizers with the search interval of each tuned hyperparameter.

    The entry is returned unchanged if only the learning rate is tuned. This includes all optimizers of other
    libraries.
    """
    name, options = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    if name.partition(":")[0] in LIBRARIES:
        return entry
    tuned = [key for key in SPACE if key in find_rule(name).hyperparameters]
    if tuned == ["learning_rate"]:
        return entry
    return {name: {**options, "space": {key: SPACE[key] for key in tuned}}}
