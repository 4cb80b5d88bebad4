"""Runs jobs: they compute all runs of an optimizer, round by round.

Tuning rounds try settings of the hyperparameters. The final round runs the chosen setting on other seeds. A
cell is a method (an optimizer in a basis) on a workload in one round. The runs of a cell, called lanes, are
computed together as one or several bundles. As soon as a bundle is finished, its rows are stored as parts of
the tables `runs` and `curves`. A job that is started again computes only the runs whose rows are missing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import polars as pl

from curvebench.engine.bundle import Bundle
from curvebench.engine.checkpoints import CHECKPOINT_SECONDS, Checkpoints
from curvebench.engine.execution import execute
from curvebench.engine.programs import Programs
from curvebench.paths import checkpoints_folder
from curvebench.progress import Progress
from curvebench.results import schema
from curvebench.results import tuning as tuning_results
from curvebench.results.outcomes import missing
from curvebench.results.reading import read
from curvebench.results.tuning import Judge
from curvebench.results.writing import write_table
from curvebench.seeding import generator
from curvebench.sources import check_unchanged
from curvebench.spec.job import RunsSpec
from curvebench.spec.method import BasisSpec, Method, WorkloadSpec
from curvebench.stages import job as job_parts
from curvebench.stages.records import RunTables, failed_rows, rows
from curvebench.stages.supervision import FAULTS, Failure, Interrupted, Lanes, failure_of
from curvebench.steps.engine import Engine
from curvebench.workloads.workload import Workload


def run_lanes(job: job_parts.Job) -> None:
    """Compute the unfinished runs of a job, round by round, and write the tables `runs` and `curves`.

    Failures are handled as follows.

    - If a bundle raises an exception, or its process dies, the settings of the bundle are tried again one by
      one. If a setting fails again, the runs of the setting with all seeds have failed.
    - If a signal ended the process of a bundle that has a checkpoint, the bundle is not tried again in this
      call. The next call resumes the bundle.
    - If the problem or the basis of a cell cannot be made, all runs of the cell have failed.
    """
    spec = job.runs
    # A submission (a study with a single added method) has the name of its method: show the name once.
    title = " ".join(dict.fromkeys((spec.study, spec.description)))
    progress = Progress(f"{title} on {spec.backend}", sum(spec.lanes))
    engine_of, numbers = cache(job.engine), itertools.count()
    tables = [
        table
        for workload in spec.workloads
        for table in _of_workload(job, workload, engine_of, numbers, progress)
    ]
    nothing = RunTables(pl.DataFrame(schema=schema.CURVES), pl.DataFrame(schema=schema.RUNS))
    for name, frames in zip(RunTables._fields, zip(nothing, *tables, strict=True), strict=True):
        job.write(name, pl.concat(frames).sort("run", maintain_order=True))


def _of_workload(
    job: job_parts.Job,
    workload: WorkloadSpec,
    engine_of: Callable[[str], Engine],
    numbers: Iterator[int],
    progress: Progress,
) -> list[RunTables]:
    """Compute all rounds of a job on a workload, and return the rows of the tables `runs` and `curves`.

    All rounds share problems and compiled programs.

    Args:
        job: the job.
        workload: name and settings of the workload.
        engine_of: function that returns the engine for a precision.
        numbers: iterator over the indices that the cells of the job get.
        progress: progress bar of the job.
    """
    spec = job.runs
    loaded, tables = job_parts.workload_of(workload, spec.training.evaluated_splits), list[RunTables]()
    problem, programs = cache(partial(job_parts.instance, loaded, workload.settings)), dict[str, Programs]()
    upstream = [read(folder, "runs").filter(workload=loaded.name) for folder in job.upstream("runs")]
    for number in spec.rounds:
        in_round = replace(job, spec=spec.in_round(number))
        previous = pl.concat([pl.DataFrame(schema=schema.RUNS), *upstream, *(rows.runs for rows in tables)])
        settings_of = _settings_of(in_round, loaded, previous.filter(pl.col("round") < number))
        for basis in in_round.spec.bases:
            cell = job_parts.Cell(loaded, workload, spec.optimizers[0], basis, settings_of(basis.label))
            of_cell = partial(_programs, spec, basis, programs)
            run = _CellRun(in_round, cell, next(numbers), engine_of, problem, of_cell, progress)
            tables += run.tables()
    return tables


def _programs(
    spec: RunsSpec,
    basis: BasisSpec,
    programs: dict[str, Programs],
    bundle: Bundle,
    instance: job_parts.Instance,
    engine: Engine,
) -> Programs:
    """Return the compiled programs that all rounds with the same basis share.

    Args:
        spec: the spec of the whole job, with all rounds.
        basis: the basis.
        programs: a dictionary from labels of bases to their programs. If it has no programs for `basis`, they
            are added.
        bundle: bundle of all lanes of one round.
        instance: the problem of one of the seeds of the round.
        engine: engine of the backend.
    """
    if basis.label not in programs:
        rounds = [in_round for in_round in map(spec.in_round, spec.rounds) if basis in in_round.bases]
        counts = [(len(in_round.seeds), in_round.tries(in_round.rounds[0])) for in_round in rounds]
        if spec.settings is not None:
            counts = [bundle.lanes]
        longest = replace(
            bundle, schedule=job_parts.schedule_of(spec, instance), evaluations=spec.training.evaluations
        )
        programs[basis.label] = Programs.of_rounds(longest, counts, engine, spec.bundle_memory_bytes)
    return programs[basis.label]


def _settings_of(
    job: job_parts.Job, workload: Workload, tuned: pl.DataFrame
) -> Callable[[str], Sequence[Mapping[str, float]]]:
    """Return a function that returns the settings of a round for a basis, given by its label.

    In the final round, the first setting is the setting that tuning has chosen. If each run is a job of its
    own, the job of a tuning round has one setting. If tuning runs of the basis were interrupted, there are no
    settings, and the next call of the job computes the interrupted runs first.

    Args:
        job: the job with the spec of the round.
        workload: the workload.
        tuned: rows of earlier tuning rounds on the workload.
    """
    spec = job.runs
    if (settings := spec.settings) is not None:
        return lambda basis: settings
    tuning, (number,) = spec.tuning, spec.rounds
    judge = Judge(tuning, lambda metric: workload.metrics[metric].direction, spec.training.stop)
    interrupted = tuned.clear() if job.keep_failed else tuned.filter(missing())
    incomplete = set(interrupted["basis"])
    outcomes = tuning_results.tuning_outcomes(tuned, judge)
    of_job = slice(None) if spec.setting_index is None else slice(spec.setting_index, spec.setting_index + 1)

    def settings_of(basis: str) -> Sequence[Mapping[str, float]]:
        tuning_basis = tuning.tuning_basis(basis)
        outcome = outcomes.get((workload.name, tuning_basis))
        if number and (tuning_basis in incomplete or outcome is None):
            return ()
        if number < spec.final_round:
            return tuning.settings(number, generator(spec.study, tuning.protocol), outcome)[of_job]
        assert outcome is not None
        settings = outcome.candidate_settings if basis in spec.compared_bases else (outcome.chosen,)
        return [dict(zip(tuning.names, setting, strict=True)) for setting in settings]

    return settings_of


@dataclass
class _CellRun:
    """Computation of one cell of a job, bundle by bundle. Lanes whose rows are stored are not computed again.

    Args:
        job: the job.
        cell: the cell of the job.
        number: index of the cell in the job.
        engine_of: function that returns the engine for a precision.
        instance_of: function that returns the problem for a seed.
        programs_of: function that returns the compiled programs of all rounds. Its arguments are the bundle
            of all lanes of the cell, the problem of a seed, and the engine.
        progress: progress bar of the job.
        built: the bundle of all lanes of the cell, and the basis of the bundle; None until both are built.
    """

    job: job_parts.Job
    cell: job_parts.Cell
    number: int
    engine_of: Callable[[str], Engine]
    instance_of: Callable[[int], job_parts.Instance]
    programs_of: Callable[[Bundle, job_parts.Instance, Engine], Programs]
    progress: Progress
    built: tuple[Bundle, job_parts.LoadedBasis] | None = None

    def __post_init__(self) -> None:
        cell, spec = self.cell, self.job.runs
        self.lanes = Lanes(self.number, 0, len(spec.seeds), 0, len(cell.settings))
        names, settings = (cell.workload.name, cell.basis.label), list(map(dict, cell.settings))
        key = json.dumps([*names, *spec.rounds, spec.seeds, settings])
        self.key = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.folder = self.job.folder / job_parts.PARTS / self.key
        self.checkpoints_of_job = checkpoints_folder(self.job.results, self.job.spec.name)
        self.done = self._stored("runs")

    def tables(self) -> list[RunTables]:
        """Read or compute all lanes of the cell, and return the rows of the lanes."""
        supervision, building = self.job.supervision, Lanes(self.number)
        if not self.cell.settings:
            # If the tuning runs belong to another job, record why there are no settings.
            # If the tuning runs belong to this job, the job has already recorded their failures.
            if self.job.upstream("runs"):
                reason = "no runs that tune it: they were interrupted, and come first, or failed"
                self.job.fail(self._name, Failure("interrupted", reason))
            return []
        if not self._unfinished(self.lanes):
            return [self._read(lanes) for lanes in self.done]
        if supervision.ended:
            return self._tables_at_end(supervision.ended)
        for lanes in self._stored("failed"):  # remove earlier failures: these lanes are tried again
            self._file(lanes, "failed").unlink()
        failure = supervision.lost.get(building)
        if failure is None:
            self.engine = self.engine_of(job_parts.precision_of(self.job.spec, self.cell.workload))
            supervision.journal.begin(building)
            try:
                bundle, _ = self._build()
                programs = self.programs_of(bundle, self.instance_of(self.job.spec.seeds[0]), self.engine)
                parts = programs.parts(bundle, self.engine, self.job.runs.bundle_memory_bytes)
            except FAULTS as error:
                self.job.trace(error)
                self.built, failure = None, failure_of(error)
        elif failure.step:
            self._build()
        if failure is not None:
            return self._with_failure(self.lanes, failure)
        return [
            table
            for seeds, settings in parts
            for table in self._attempt(
                Lanes(self.number, seeds.start, seeds.stop, settings.start, settings.stop), programs
            )
        ]

    def _build(self) -> tuple[Bundle, job_parts.LoadedBasis]:
        with self.job.clock.phase("data"):
            instances = list(map(self.instance_of, self.job.spec.seeds))
            basis = job_parts.basis_of(self.job, self.cell.basis, instances)
            self.built = job_parts.bundle_of(self.job, self.cell, instances, basis), basis
            return self.built

    def _attempt(self, lanes: Lanes, programs: Programs | None = None) -> list[RunTables]:
        """Return the rows of a range of lanes: stored rows if there are any, or else the rows of new runs.

        The lanes are computed together. If that fails, or has failed in an earlier process, each setting is
        computed separately.

        Args:
            lanes: the lanes.
            programs: compiled programs of the cell; None if the lanes have a single setting after a failure.
                Then new programs are compiled, because the programs of the cell have a fixed shape, and would
                need as much memory as the bundle that has failed.
        """
        if lanes in self.done:
            return [self._read(lanes)]
        supervision = self.job.supervision
        failure = supervision.lost.get(lanes)
        partly_done = any(lanes.contains(stored) for stored in self.done)
        if failure is None and not partly_done:
            supervision.journal.begin(lanes)
            checkpoints = self._checkpoints(lanes)
            # If SIGTERM arrives after the first step, the signal is deferred until the rows are written.
            with checkpoints.termination:
                try:
                    table = self._execute(lanes, checkpoints, programs)
                except FAULTS as error:
                    self.job.trace(error)
                    failure = failure_of(error, supervision.journal.read()[1])
                    # If SIGTERM has arrived, the end of the `with` block ends the process.
                    # Therefore the rows are stored before.
                    if checkpoints.termination.came:
                        self._store_failed(lanes, failure)
                # Store rows only for the lanes that have begun.
                # The method `_tables_at_end` makes rows for all other lanes.
                except Interrupted as error:
                    self._store_failed(lanes, failure_of(error, supervision.journal.read()[1]))
                    raise
                else:
                    check_unchanged(self.job.spec)
                    for name, frame in table._asdict().items():
                        write_table(self._file(lanes, name), frame, schema.TABLES[name])
                    checkpoints.remove()
                    return [table]
        settings = lanes.by_setting()
        is_resumable = (
            failure is not None
            and failure.outcome == "interrupted"
            and self._checkpoints(lanes).done is not None
        )
        if len(settings) > 1 and not is_resumable:
            return [table for setting in settings for table in self._attempt(setting)]
        assert failure is not None, "lanes of one setting are done as a whole"
        if failure.outcome == "out_of_memory":
            batch_size = self.cell.workload_spec.settings.get("batch_size")
            remedy = self.job.training.with_half_the_memory(batch_size)
            failure = failure._replace(reason=f"{failure.reason}; {remedy}")
        return self._with_failure(lanes, failure)

    def _execute(self, lanes: Lanes, checkpoints: Checkpoints, programs: Programs | None) -> RunTables:
        """Run lanes together as one bundle, and return the rows of the lanes.

        Args:
            lanes: the lanes.
            checkpoints: checkpoints of the bundle.
            programs: compiled programs of the cell; None to compile programs for this bundle.
        """
        assert self.built is not None
        bundle, basis = self.built
        seeds, settings = (slice(*bounds) for bounds in (lanes[1:3], lanes[3:]))
        part = bundle.subset(seeds, settings)
        report = self._reporter(lanes, len(part.schedule))
        trajectories = execute(part, self.engine, self.job.clock, report, checkpoints, programs)
        return rows(self.job, self.cell, part, trajectories, basis, lanes)

    def _with_failure(self, lanes: Lanes, failure: Failure) -> list[RunTables]:
        """Record a failure for the unfinished lanes in a range, and return the rows of the whole range.

        Finished lanes have their stored rows. All other lanes have rows with the failure.
        """
        table = self._store_failed(lanes, failure)
        self._record_failure(lanes, table.runs)
        return [*(self._read(stored) for stored in self.done if lanes.contains(stored)), table]

    def _store_failed(self, lanes: Lanes, failure: Failure) -> RunTables:
        """Store and return rows with a failure for the unfinished lanes in a range.

        If the lanes have a checkpoint, the reason of the failure names the step of the checkpoint.
        """
        saved = self._checkpoints(lanes).done
        if saved is not None:
            reason = f"{failure.reason}; tried again, it goes on after step {saved}"
            failure = failure._replace(reason=reason, step=max(saved, failure.step or 0))
        table = failed_rows(self.job, self.cell, self.number, self._unfinished(lanes), failure, self.built)
        write_table(self._file(lanes, "failed"), table.runs, schema.RUNS)
        return table

    def _tables_at_end(self, ended: Failure) -> list[RunTables]:
        """Return the rows of all lanes of a job that has ended, without any computation.

        Finished lanes and failed lanes have their stored rows. All other lanes get rows with the failure
        `ended`.
        """
        names = {path.parent.name for path in self.checkpoints_of_job.glob(f"{self.key}-*/[0-9]*.npz")}
        with_checkpoints = sorted(self._lanes(name.partition("-")[2]) for name in names)
        # If lanes have a checkpoint but no rows, their process was killed before it could store rows.
        for lanes in with_checkpoints:
            if set(lanes.pairs) <= set(self._unfinished(self.lanes, *self._stored("failed"))):
                # Build the bundle, from which the cost of its steps is computed.
                # If the bundle cannot be built, the cost in the rows is 0.
                with suppress(*FAULTS):
                    self._build()
                self._store_failed(lanes, ended)
        tables, failed = list(map(self._read, self.done)), self._stored("failed")
        for lanes in failed:
            runs = read([self._file(lanes, "failed")], "runs")
            self._record_failure(lanes, runs)
            tables.append(RunTables(pl.DataFrame(schema=schema.CURVES), runs))
        if unfinished := self._unfinished(self.lanes, *failed):
            tables.append(failed_rows(self.job, self.cell, self.number, unfinished, ended))
            self._record_failure(self.lanes, tables[-1].runs)
        return tables

    def _unfinished(self, lanes: Lanes, *failed: Lanes) -> list[tuple[int, int]]:
        """Return the unfinished lanes in a range, as pairs: index of the seed, and index of the setting.

        Args:
            lanes: the range.
            failed: further ranges of lanes that are left out.
        """
        return sorted(set(lanes.pairs).difference(*(stored.pairs for stored in (*self.done, *failed))))

    def _record_failure(self, lanes: Lanes, runs: pl.DataFrame) -> None:
        """Record the failure of some lanes as a failure of the job.

        Args:
            lanes: the range that contains the failed lanes.
            runs: rows of the failed lanes in the table `runs`.
        """
        self.progress.advance(len(runs), f"({self._name})")
        spec = self.job.runs
        (number,) = spec.rounds
        at = " in the final round" if number == spec.final_round else f" in tuning round {number + 1}"
        if self._is_single or lanes.end_setting - lanes.first_setting < len(self.cell.settings):
            at += f" at learning_rate {self.cell.settings[lanes.first_setting]['learning_rate']:g}"
        failure = Failure(*runs.select("outcome", "reason", "outcome_step").row(0))
        self.job.fail(f"{self._name}{at}, {len(runs)} of {len(self.lanes.pairs)} runs", failure)

    def _read(self, lanes: Lanes) -> RunTables:
        self.progress.advance(len(lanes.pairs), f"({self._name}, done before)")
        return RunTables(*(read([self._file(lanes, name)], name) for name in RunTables._fields))

    def _stored(self, table: str) -> list[Lanes]:
        """Return the ranges of lanes for which a table is stored, given the name of the table.

        Files that another process has not written completely are ignored.
        """
        end = f".{table}.parquet"
        return sorted(self._lanes(path.name.removesuffix(end)) for path in self.folder.glob(f"[0-9]*{end}"))

    def _lanes(self, numbers: str) -> Lanes:
        return Lanes(self.number, *map(int, numbers.split("-")))

    def _file(self, lanes: Lanes, table: str) -> Path:
        return self.folder / f"{lanes.numbers}.{table}.parquet"

    def _checkpoints(self, lanes: Lanes) -> Checkpoints:
        run = {"spec": self.job.spec.hash, "cell": self.key, "lanes": lanes.numbers}
        minutes = self.job.checkpoint_minutes
        return Checkpoints(
            self.checkpoints_of_job / f"{self.key}-{lanes.numbers}",
            run,
            f"{self._name}, {len(lanes.pairs)} runs",
            every=CHECKPOINT_SECONDS if minutes is None else 60 * minutes,
        )

    @property
    def _name(self) -> str:
        method = Method(self.cell.optimizer.label, self.cell.basis.label)
        seed = f", seed {self.job.spec.seeds[0]}" if self._is_single else ""
        return f"{method.label} on {self.cell.workload.name}{seed}"

    @property
    def _is_single(self) -> bool:
        return self.job.runs.single_run

    def _reporter(self, lanes: Lanes, steps: int) -> Callable[[int], None]:
        """Return a function that reports the steps that lanes have taken to the journal and the progress bar.

        Args:
            lanes: the lanes.
            steps: number of steps of a whole run.
        """
        reported, earlier = 0, self.job.clock.earlier

        def report(done: int) -> None:
            nonlocal reported, earlier
            self.job.supervision.journal.step(done, self.job.clock.earlier - earlier)
            self.progress.advance(len(lanes.pairs) * (done - reported) / steps)
            reported, earlier = done, self.job.clock.earlier

        return report
