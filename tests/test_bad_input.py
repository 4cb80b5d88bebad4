"""One table of bad input: each is answered with the file, the key and the remedy, before any compute."""
# ruff: noqa: E501 (one case a line reads as the table that it is)

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, prepare, write_specs
from curvebench.results import schema
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError
from tests.curvebench.tiny import write_study

Act = Callable[[Path, pytest.MonkeyPatch], int]


@dataclass(frozen=True)
class Case:
    """Bad input: what is done in a fresh folder, what the message must hold, and what it must not."""

    name: str
    act: Act
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def checks(*changes: tuple[str, str]) -> Act:
    """`curvebench check` on the tiny study with some of its text replaced."""
    return lambda folder, _: main(["check", "--studies", str(write_study(folder, *changes).parent)])


def configures(**config: object) -> Act:
    """What the Snakefile does with its configuration."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        write_study(folder / "studies")
        folders = {"results": str(folder / "results"), "site": str(folder / "site")}
        try:
            prepare({**folders, "study_folder": str(folder / "studies"), **config})
        except InputError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        return 0

    return act


def file_holds(content: bytes) -> Act:
    """`curvebench check` on a file of other content."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        (folder / "tiny.yaml").write_bytes(content)
        return main(["check", "--studies", str(folder)])

    return act


def table_holds(change: Callable[[bytes], bytes]) -> Act:
    """`curvebench show` on a table whose bytes are changed."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        (folder / "runs" / "job").mkdir(parents=True)
        path = folder / "runs" / "job" / "runs.parquet"
        write_table(path, pl.DataFrame(schema=schema.RUNS), schema.RUNS)
        path.write_bytes(change(path.read_bytes()))
        return main(["show", "some-run", "--results", str(folder)])

    return act


def spec_holds(old: str, new: str) -> Act:
    """`curvebench run` on a spec whose text is changed."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        write_study(folder / "studies")
        config = Config(results=folder, site=folder / "site", study_folder=folder / "studies")
        plan = make_plan(config)
        write_specs(plan)
        path = plan.jobs[0].spec_path
        path.write_text(path.read_text().replace(old, new))
        return main(["run", str(path), "--results", str(folder)])

    return act


def folder_refuses(number: int) -> Act:
    """A results folder that cannot be written to: the probe and the files themselves fail."""

    def act(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
        def refuse(*_: object, **given: object) -> None:
            raise OSError(number, os.strerror(number), str(given["dir"]))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        return configures()(folder, monkeypatch)

    return act


def folder_is_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    (folder / "taken").write_text("")
    return configures(results=str(folder / "taken" / "results"))(folder, monkeypatch)


BASES = "bases: [identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]"
SWEEP = "protocol: two_stage_sweep\n  of: learning_rate\n  coarse: [1e-2, 1e-1]"
RATES = "coarse: [1e-2, 1e-1]"
WORKLOAD = "workload: {least_squares: {n: 8, d: 4}}"
HOLDS = "{metric: final train_loss, better: [adam @ egop], than: [adam], smallest_effect: 5 %}"
TABLE = [
    # unknown names
    Case("optimizer", checks(("[sgd, adam]", "[sgd, adma]")), ("tiny.yaml: optimizers.adma:", "'adma'", "did you mean 'adam'?", "adagrad")),
    Case("basis", checks(("[identity, {egop", "[identity, {egpo")), ("tiny.yaml: bases:", "'egpo'", "'egop'")),
    Case("workload", checks(("least_squares", "least_square")), ("tiny.yaml: workloads:", "did you mean 'least_squares'?")),
    Case("backend", checks(("      jax: {}", "      jx: {}")), ("scales.quick.backends:", "'jx'", "did you mean 'jax'?")),
    Case("backend once", checks(("      jax: {}", "      jaxx: {}")), ("no backend 'jaxx'; did you mean 'jax'?",), ("tuned_on",)),
    Case("setting of a workload", checks(("{n: 8, d: 4}", "{label: 3, n: 8}")), ("tiny.yaml: workload.least_squares.label: 3 is not text",)),
    Case("backend that tunes", checks(("tuned_on: jax", "tuned_on: torch")), ("backends.torch.tuned_on", "valid: jax")),
    Case("metric to choose by", checks(("median final train_loss", "median final loss")), ("tuning.choose:", "'loss'", "train_loss")),
    Case("metric of a claim", checks((HOLDS, HOLDS.replace("train_loss", "test_loss"))), ("claims.tiny.claim.holds_if[0]:", "'test_loss'")),
    Case("method of a claim", checks(("[adam @ egop]", "[adam @ ego]")), ("claims.tiny.claim", "did you mean 'adam @ egop'?")),
    Case("schedule", checks(("{name: constant}", "{name: cosin}")), ("schedule.name:", "did you mean 'cosine'?")),
    Case("hyperparameter", checks(("[sgd, adam]", "[sgd, {adam: {beta_1: 0.9}}]")), ("optimizers.adam:", "did you mean 'beta1'?")),
    Case("option of a basis", checks(("blocks: all", "block: all")), ("bases.egop:", "did you mean 'blocks'?")),
    Case("study asked for", configures(studies="tinny"), ("--config studies:", "'tinny'", "did you mean 'tiny'?", "studies: tiny; claims: curvebench list")),
    Case("scale asked for", configures(scale="papr"), ("--config scale:", "'papr'", "quick")),
    Case("configuration key", configures(study="tiny"), ("--config study:", "did you mean 'studies'?")),
    Case("configuration of a wrong type", configures(studies=3), ("--config studies:", "3 is not a list of names")),
    Case("configuration of blanks", configures(studies=" "), ("--config studies:", "' ' is not a list of names")),
    Case("backend given twice", configures(backends="jax,jax"), ("--config backends: 'jax' is given twice", "once")),
    Case("no time between checkpoints", configures(checkpoint_minutes=0), ("--config checkpoint_minutes:", "greater than 0")),
    Case("minutes that are none", configures(minutes="nan"), ("--config minutes:", "finite number")),
    # keys
    Case("misspelt key", checks(("optimizers:", "optimisers:")), ("tiny.yaml: optimisers:", "did you mean 'optimizers'?")),
    Case("misspelt inner key", checks(("tuning: 2", "tunning: 2")), ("scales.quick.seeds.tunning:", "did you mean 'tuning'?", "scales.quick.seeds.tuning: is missing")),
    Case("key of a scale at the top", checks(("stop:", "gradient_accumulation: 2\nstop:")), ("tiny.yaml: gradient_accumulation: a study has no key", "it is a key of scales")),
    Case("key with the name of an alternative", checks(("stop:", "number: true\nstop:")), ("tiny.yaml: number: a study has no key 'number'",)),
    Case("key of a study in a scale", checks(("evaluations: 4", "evaluations: 4\n    clip_gradient_norm: 1")), ("scales.quick.clip_gradient_norm: scales.quick has no key", "it is a key of a study")),
    Case("metric of nothing", checks((WORKLOAD, "workload: digits_mlp"), ("{metric: final train_loss}\nclaims", "{metric: final minibatch_accuracy}\nclaims"), ("evaluations: 4", "evaluations: 4\n    evaluated_splits: [train]")), ("compare.metric:", "'minibatch_accuracy'"), ("leaves minibatch out",)),
    Case("missing key", checks(("compare: {metric: final train_loss}\n", "")), ("tiny.yaml: compare: is missing",)),
    Case("duplicate key", checks(("source: none\nworkload", "source: none\nsource: two\nworkload")), ("tiny.yaml: source: duplicate key at line 3", "keep one")),
    Case("no workload", checks((WORKLOAD + "\n", "")), ("tiny.yaml: workload (or workloads): is missing",)),
    Case("both epochs and steps", checks(("steps: 20", "steps: 20\n    epochs: 4")), ("scales.quick: give either epochs or steps",)),
    Case("claim without a relation", checks((HOLDS, "{metric: final train_loss, than: [adam]}")), ("holds_if[0]: give exactly one of better, no_worse and same",)),
    # types
    Case("text for a number", checks((RATES, "coarse: ['1e-3', 1e-1]")), ("tuning.coarse[0]:", "'1e-3' is not a number", "write 1e-3 without quotes")),
    Case("text for a floor", checks(("compare: {metric: final train_loss}", "compare: {metric: final train_loss, floor: '1e-28'}")), ("compare.floor:", "'1e-28' is not a number", "write 1e-28 without quotes")),
    Case("floor without end", checks(("compare: {metric: final train_loss}", "compare: {metric: final train_loss, floor: -.inf}")), ("compare.floor: -inf", "finite")),
    Case("text for a hyperparameter", checks(("[sgd, adam]", "[sgd, {adam: {epsilon: '1e-3'}}]")), ("optimizers.adam:", "epsilon = '1e-3' is not a number")),
    Case("number for text", checks(("question: Does it run?", "question: 3")), ("tiny.yaml: question:", "3 is not text")),
    Case("name for a list", checks(("[sgd, adam]", "sgd")), ("tiny.yaml: optimizers:", "'sgd' is not a list")),
    Case("list for an optimizer", checks(("[sgd, adam]", "[[sgd], adam]")), ("optimizers[0]:", "neither a name nor a name with options")),
    Case("percentage", checks(("5 %", "0.05")), ("smallest_effect:", "is not a percentage such as '5 %'")),
    Case("what is judged", checks(("metric: final train_loss, better", "metric: train_loss, better")), ("holds_if[0].metric:", "such as 'final train_loss'")),
    # values
    Case("negative learning rate", checks((RATES, "coarse: [-1e-1, 1e-1]")), ("tiny.yaml: tuning:", "-0.1 is not a power of ten")),
    Case("zero learning rate", checks((SWEEP, "protocol: random_search\n  budget: 3\n  space: {learning_rate: {low: 0, high: 1, scale: linear}}")), ("learning_rate = 0", "outside (0, inf)")),
    Case("hyperparameter beyond all floats", checks(("[sgd, adam]", "[sgd, {adam: {epsilon: 1" + "0" * 400 + "}}]")), ("tiny.yaml: optimizers.adam:", "epsilon = 1000", "is outside [0, inf)")),
    Case("fixed and tuned at once", checks(("[sgd, adam]", "[sgd, {adam: {learning_rate: 0.1}}]")), ("optimizers.adam: learning_rate:", "is tuned by this study")),
    Case("empty interval", checks((SWEEP, "protocol: halton_search\n  budget: 3\n  space: {learning_rate: {low: 2, high: 1, scale: log}}")), ("tuning.space.learning_rate:", "low = 2 is above high = 1")),
    Case("logarithm of zero", checks((SWEEP, "protocol: halton_search\n  budget: 3\n  space: {learning_rate: {low: 0, high: 1, scale: log}}")), ("tuning.space.learning_rate:", "scale: linear")),
    Case("no optimizers", checks(("[sgd, adam]", "[]")), ("tiny.yaml: optimizers: is empty",)),
    Case("uneven evaluations", checks(("evaluations: 4", "evaluations: 3")), ("scales.quick: evaluations: 3 does not divide the 20 steps", "valid near it: 1, 2, 4, 5")),
    Case("endless budget", checks(("steps: 20", "steps: 1000000000000")), ("scales.quick.steps", "1000000000")),
    Case("device", checks(("      jax: {}", "      jax: {device: cdua}")), ("scales.quick.backends.jax.device", "'cdua'", "'cpu'")),
    Case("target that is no number", checks(("{train_loss: 1e-3}", "{train_loss: .nan}")), ("targets.train_loss", "finite")),
    Case("end of a constant schedule", checks(("{name: constant}", "{name: constant, final: 0.5}")), ("schedule", "a constant schedule has none")),
    Case("cool-down of a falling schedule", checks(("{name: constant}", "{name: cosine, cooldown: 0.5}")), ("schedule", "cooldown", "cosine falls by itself")),
    Case("warm-up and cool-down overlap", checks(("{name: constant}", "{name: constant, warmup: 0.6, cooldown: 0.5}")), ("schedule", "together they exceed 1")),
    Case("two warm-ups", checks(("{name: constant}", "{name: constant, warmup: 0.1, warmup_epochs: 1}")), ("schedule: warmup_epochs: warmup says the same", "give one of the two")),
    Case("warm-up that is longer than a run", checks(("{name: constant}", "{name: constant, warmup_epochs: 21}"), ("steps: 20", "epochs: 20")), ("schedule.warmup_epochs: 21 epochs are more than the 20 of scales.quick", "give fewer, or more scales.quick.epochs")),
    Case("warm-up and cool-down that are longer", checks(("{name: constant}", "{name: constant, warmup_epochs: 15, cooldown: 0.5}"), ("steps: 20", "epochs: 20")), ("schedule.warmup_epochs: 15 epochs and the cool-down are more than the 20",)),
    Case("clipping to nothing", checks(("stop: {", "clip_gradient_norm: 0\nstop: {")), ("tiny.yaml: clip_gradient_norm: 0", "greater than 0")),
    Case("no parts", checks(("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 0")), ("scales.quick.gradient_accumulation: 0", "greater than or equal to 1")),
    Case("parts of no minibatch", checks(("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 2")), ("scales.quick.gradient_accumulation: least_squares has no minibatches to cut", "give its batch_size")),
    Case("parts of half a pair of images", checks((WORKLOAD, "workload: {image_vit: {batch_size: 12}}"), ("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 4")), ("tiny.yaml: scales.quick.gradient_accumulation: 4 cuts the batch_size of image_vit, 12, into parts: batch_size = 3 is odd", "in pairs")),
    Case("parts that do not divide", checks((WORKLOAD, "workload: {digits_mlp: {batch_size: 100}}"), ("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 3")), ("scales.quick.gradient_accumulation: 3 does not divide the batch_size of digits_mlp, 100", "a multiple of 3")),
    Case("split that is not there", checks(("evaluations: 4", "evaluations: 4\n    evaluated_splits: [train, tset]")), ("scales.quick.evaluated_splits:", "has no split 'tset'", "train")),
    Case("split twice", checks(("evaluations: 4", "evaluations: 4\n    evaluated_splits: [train, train]")), ("scales.quick.evaluated_splits: 'train' stands here twice",)),
    Case("no splits", checks(("evaluations: 4", "evaluations: 4\n    evaluated_splits: []")), ("scales.quick.evaluated_splits: is empty or too short",)),
    Case("metrics of a split that is not evaluated", checks((WORKLOAD, "workload: digits_mlp"), ("evaluations: 4", "evaluations: 4\n    evaluated_splits: [validation]")), ("tuning.choose: train_loss is not evaluated: scales.quick.evaluated_splits leaves train out; add it there, or name another metric", "compare.metric: train_loss is not", "targets.train_loss: train_loss is not", "claims.tiny.claim.holds_if[0]: train_loss is not")),
    Case("name of a scale", checks(("  quick:", "  quick.1:")), ("scales.quick.1:", "'quick.1'", "small letters")),
    Case("duplicate optimizer", checks(("[sgd, adam]", "[sgd, adam, sgd]")), ("tiny.yaml: optimizers:", "two optimizers are called 'sgd'; give each its own `label:`")),
    Case("duplicate workload", checks((WORKLOAD, "workloads: [least_squares, least_squares]")), ("tiny.yaml: workloads:", "two workloads are called 'least_squares'; give each its own `label:`")),
    Case("label of a basis", checks(("blocks: all", "label: A/B, blocks: all")), ("bases.egop.label:", "'A/B'", "small letters")),
    Case("empty label", checks(("[sgd, adam]", "[sgd, {adam: {label: ''}}]")), ("tiny.yaml: optimizers.adam.label: is empty", "leave it out")),
    Case("factors of a labelled optimizer", checks(("[sgd, adam]", "[sgd, {adam: {label: fast, factors: 3}}]")), ("tiny.yaml: optimizers.fast.factors: 3 is not a mapping",)),
    Case("blocks that a workload lacks", checks(("blocks: all", "blocks: weights")), ("bases.egop:", "least_squares", "use blocks: all")),
    Case("shared choice without its chooser", checks((BASES, "bases: [egop]")), ("tuning.shared_across:", "add it to bases")),
    Case("more seeds than there are", checks(("seeds: {final: 2}", "seeds: {final: 4}")), ("backends.torch.seeds.final:", "use at most 3")),
    Case("batch larger than the data", checks((WORKLOAD, "workload: {digits_mlp: {batch_size: 1223}}")), ("tiny.yaml: workloads.digits_mlp:", "batch_size = 1223 is larger than the 1222 training examples", "null: full batch")),
    # files
    Case("no study", lambda folder, _: main(["check", "--studies", str(folder)]), ("holds no study file (*.yaml)",)),
    Case("no YAML", file_holds(b"question: [1\nb: 2\n"), ("tiny.yaml: line 2: not valid YAML",)),
    Case("no mapping", file_holds(b"- one\n- two\n"), ("tiny.yaml: not a study", "optimizers")),
    Case("no text", file_holds(b"question: \xff\xfe\n"), ("tiny.yaml: not a text file in UTF-8",)),
    Case("truncated Parquet", table_holds(lambda content: content[: len(content) // 2]), ("runs.parquet",)),
    Case("no tables", lambda folder, _: main(["show", "run", "--results", str(folder)]), ("runs.parquet", "run snakemake")),
    Case("no spec", lambda folder, _: main(["run", str(folder / "lost.json")]), ("lost.json: cannot be read", "run snakemake")),
    Case("damaged spec", spec_holds('"stage"', "stage"), (".json: not a job spec", "delete it and run snakemake again")),
    Case("edited spec", spec_holds('"seeds": [\n  0', '"seeds": [\n  7'), (".json: its content has the hash", "delete the file")),
    Case("read-only results folder", folder_refuses(errno.EROFS), ("specs: cannot be written (Read-only file system)", "--config results=")),
    Case("full results folder", folder_refuses(errno.ENOSPC), ("specs: cannot be written (No space left on device)", "make room")),
    Case("results folder below a file", folder_is_a_file, ("taken", "cannot be written (Not a directory)")),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_bad_input_is_answered(case, tmp_path, monkeypatch, capsys):
    status = case.act(tmp_path, monkeypatch)
    said = capsys.readouterr().err
    assert status == 2
    assert all(line.startswith("error: ") for line in said.splitlines() if not line.startswith(" "))
    for part in case.shown:
        assert part in said
    assert not any(part in said for part in (*case.hidden, "Traceback"))
    assert not list(tmp_path.rglob("jobs.parquet"))


def test_a_full_disk_leaves_no_half_written_spec(tmp_path, monkeypatch):
    write_study(tmp_path / "studies")
    config = Config(results=tmp_path, site=tmp_path / "site", study_folder=tmp_path / "studies")
    plan = make_plan(config)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_specs(plan)
    assert not list((tmp_path / "specs").iterdir())
