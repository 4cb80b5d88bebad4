"""The runs of a method, round by round: every cell's lanes as bundles, written as runs and curves."""

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
from curvebench.engine.checkpoints import EVERY, Checkpoints
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
    """Run all lanes of a job that are not done, round by round, and write its tables.

    A bundle that raises, or takes its process with it, is tried again setting by setting; where that fails
    all seeds of the setting have failed. One of which a checkpoint stands is left to the next call instead,
    if a signal ended its process. A cell whose problem or basis cannot be made has failed as a whole.
    """
    spec = job.runs
    # The study of a submission has the name of its method, which is not repeated.
    about = " ".join(dict.fromkeys((spec.study, spec.description)))
    progress = Progress(f"{about} on {spec.backend}", sum(spec.lanes))
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
    """Return the rows of all rounds on a workload, whose problems are kept from round to round.

    Args:
        numbers: gives each cell of the job its number.
    """
    spec = job.runs
    found, tables = job_parts.workload_of(workload, spec.training.evaluated_splits), list[RunTables]()
    problem, programs = cache(partial(job_parts.instance, found, workload.settings)), dict[str, Programs]()
    upstream = [read(folder, "runs").filter(workload=found.name) for folder in job.upstream("runs")]
    for number in spec.rounds:
        in_round = replace(job, spec=spec.in_round(number))
        before = pl.concat([pl.DataFrame(schema=schema.RUNS), *upstream, *(one.runs for one in tables)])
        settings_of = _settings_of(in_round, found, before.filter(pl.col("round") < number))
        for basis in in_round.spec.bases:
            cell = job_parts.Cell(found, workload, spec.optimizers[0], basis, settings_of(basis.label))
            of_cell = partial(_programs, spec, basis, programs)
            run = _CellRun(in_round, cell, next(numbers), engine_of, problem, of_cell, progress)
            tables += run.tables()
    return tables


def _programs(
    spec: RunsSpec,
    basis: BasisSpec,
    made: dict[str, Programs],
    bundle: Bundle,
    one: job_parts.Instance,
    engine: Engine,
) -> Programs:
    """Return the compiled programs that all rounds in a basis share, `made` before or now.

    Args:
        spec: the whole job.
        bundle: the lanes of one round.
        one: the problem of one of its seeds.
        engine: the backend.
    """
    if basis.label not in made:
        rounds = [own for own in map(spec.in_round, spec.rounds) if basis in own.bases]
        counts = [(len(own.seeds), own.tries(own.rounds[0])) for own in rounds]
        if spec.settings is not None:
            counts = [bundle.lanes]
        longest = replace(
            bundle, schedule=job_parts.schedule_of(spec, one), evaluations=spec.training.evaluations
        )
        made[basis.label] = Programs.of_rounds(longest, counts, engine, spec.bundle_memory_bytes)
    return made[basis.label]


def _settings_of(
    job: job_parts.Job, workload: Workload, tuned: pl.DataFrame
) -> Callable[[str], Sequence[Mapping[str, float]]]:
    """Return a function from a basis to the settings that a round tries in it.

    In the final round, the first setting is the chosen one. A single run in another round has its own only.
    There are none where runs that tune the basis were interrupted: the next call runs these first.

    Args:
        job: as it is in the round.
        tuned: the runs of the tuning rounds before, on the workload.
    """
    spec = job.runs
    if (settings := spec.settings) is not None:
        return lambda basis: settings
    tuning, (number,) = spec.tuning, spec.rounds
    judge = Judge(tuning, lambda metric: workload.metrics[metric].direction, spec.training.stop)
    lacking = tuned.clear() if job.keep_failed else tuned.filter(missing())
    waiting = set(lacking["basis"])
    groups = tuning_results.tuning_outcomes(tuned, judge)
    own = slice(None) if spec.setting is None else slice(spec.setting, spec.setting + 1)

    def settings_of(basis: str) -> Sequence[Mapping[str, float]]:
        chooser = tuning.tuning_basis(basis)
        outcome = groups.get((workload.name, chooser))
        if number and (chooser in waiting or outcome is None):
            return ()
        if number < spec.final_round:
            return tuning.settings(number, generator(spec.study, tuning.protocol), outcome)[own]
        assert outcome is not None
        found = outcome.candidate_settings if basis in spec.compared else (outcome.chosen,)
        return [dict(zip(tuning.names, setting, strict=True)) for setting in found]

    return settings_of


@dataclass
class _CellRun:
    """One cell of a job: what is done of it is stored, and the rest is run bundle by bundle.

    Args:
        number: of the cell in its job.
        engine_of: the engine of a precision.
        instance_of: the problem of a seed.
        programs_of: programs of all rounds of the cell, by a bundle, one of its problems and the engine.
        built: all lanes of the cell and their basis; None before they are made.
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
        self.kept_in = checkpoints_folder(self.job.results, self.job.spec.name)
        self.done = self._stored("runs")

    def tables(self) -> list[RunTables]:
        """The rows of all lanes of the cell."""
        attendance, building = self.job.attendance, Lanes(self.number)
        if not self.cell.settings:
            if self.job.upstream("runs"):  # else the runs that tune it are among the failures of this job
                why = "no runs that tune it: they were interrupted, and come first, or failed"
                self.job.fail(self._name, Failure("interrupted", why))
            return []
        if not self._left_of(self.lanes):
            return [self._read(lanes) for lanes in self.done]
        if attendance.ended:
            return self._kept(attendance.ended)
        for lanes in self._stored("failed"):  # tried again
            self._file(lanes, "failed").unlink()
        failure = attendance.lost.get(building)
        if failure is None:
            self.engine = self.engine_of(job_parts.precision_of(self.job.spec, self.cell.workload))
            attendance.journal.begin(building)
            try:
                whole, _ = self._build()
                programs = self.programs_of(whole, self.instance_of(self.job.spec.seeds[0]), self.engine)
                parts = programs.parts(whole, self.engine, self.job.runs.bundle_memory_bytes)
            except FAULTS as error:
                self.job.trace(error)
                self.built, failure = None, failure_of(error)
        elif failure.step:
            self._build()
        if failure is not None:
            return self._left(self.lanes, failure)
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
        """The rows of some lanes: read where they are stored, else run together, else setting by setting.

        A setting by itself is compiled by itself: in the tile of `programs` it would take as much memory.
        """
        if lanes in self.done:
            return [self._read(lanes)]
        attendance = self.job.attendance
        failure = attendance.lost.get(lanes)
        partly_done = any(lanes.contains(one) for one in self.done)
        if failure is None and not partly_done:
            attendance.journal.begin(lanes)
            checkpoints = self._checkpoints(lanes)
            with checkpoints.termination:  # from the first step on, until what is done is written
                try:
                    table = self._executed(lanes, checkpoints, programs)
                except FAULTS as error:
                    self.job.trace(error)
                    failure = failure_of(error, attendance.journal.read()[1])
                    if checkpoints.termination.came:  # which comes next, and is not why it failed
                        self._failed(lanes, failure)
                except Interrupted as error:  # its rows are written with those of what did not begin
                    self._failed(lanes, failure_of(error, attendance.journal.read()[1]))
                    raise
                else:
                    check_unchanged(self.job.spec)
                    for name, frame in table._asdict().items():
                        write_table(self._file(lanes, name), frame, schema.TABLES[name])
                    checkpoints.remove()
                    return [table]
        settings = lanes.by_setting()
        goes_on = (
            failure is not None
            and failure.outcome == "interrupted"
            and self._checkpoints(lanes).done is not None
        )
        if len(settings) > 1 and not goes_on:
            return [table for one in settings for table in self._attempt(one)]
        assert failure is not None, "lanes of one setting are done as a whole"
        if failure.outcome == "out_of_memory":
            batch_size = self.cell.workload_spec.settings.get("batch_size")
            remedy = self.job.training.with_half_the_memory(batch_size)
            failure = failure._replace(reason=f"{failure.reason}; {remedy}")
        return self._left(lanes, failure)

    def _executed(self, lanes: Lanes, checkpoints: Checkpoints, programs: Programs | None) -> RunTables:
        """Run lanes together."""
        assert self.built is not None
        whole, basis = self.built
        seeds, settings = (slice(*bounds) for bounds in (lanes[1:3], lanes[3:]))
        part = whole.subset(seeds, settings)
        report = self._reporter(lanes, len(part.schedule))
        trajectories = execute(part, self.engine, self.job.clock, report, checkpoints, programs)
        return rows(self.job, self.cell, part, trajectories, basis, lanes)

    def _left(self, lanes: Lanes, failure: Failure) -> list[RunTables]:
        """What is done of lanes, and rows that say of the others how they failed, which are stored."""
        table = self._failed(lanes, failure)
        self._fail(lanes, table.runs)
        return [*(self._read(one) for one in self.done if lanes.contains(one)), table]

    def _failed(self, lanes: Lanes, failure: Failure) -> RunTables:
        """Rows, which are stored, of what is not done of lanes; where a checkpoint stands they say so."""
        kept = self._checkpoints(lanes).done
        if kept is not None:
            reason = f"{failure.reason}; tried again, it goes on after step {kept}"
            failure = failure._replace(reason=reason, step=max(kept, failure.step or 0))
        table = failed_rows(self.job, self.cell, self.number, self._left_of(lanes), failure, self.built)
        write_table(self._file(lanes, "failed"), table.runs, schema.RUNS)
        return table

    def _kept(self, ended: Failure) -> list[RunTables]:
        """What is done, what failed as it did, and of the rest that nothing is computed any more."""
        names = {path.parent.name for path in self.kept_in.glob(f"{self.key}-*/[0-9]*.npz")}
        with_checkpoints = sorted(self._lanes(name.partition("-")[2]) for name in names)
        for lanes in with_checkpoints:  # its process was killed, or had not come to them
            if set(lanes.pairs) <= set(self._left_of(self.lanes, *self._stored("failed"))):
                with suppress(*FAULTS):  # without it the row lacks what its steps cost
                    self._build()
                self._failed(lanes, ended)
        tables, failed = list(map(self._read, self.done)), self._stored("failed")
        for lanes in failed:
            runs = read([self._file(lanes, "failed")], "runs")
            self._fail(lanes, runs)
            tables.append(RunTables(pl.DataFrame(schema=schema.CURVES), runs))
        if left := self._left_of(self.lanes, *failed):
            tables.append(failed_rows(self.job, self.cell, self.number, left, ended))
            self._fail(self.lanes, tables[-1].runs)
        return tables

    def _left_of(self, lanes: Lanes, *failed: Lanes) -> list[tuple[int, int]]:
        """The seed and the setting of what is neither done nor failed of lanes."""
        return sorted(set(lanes.pairs).difference(*(one.pairs for one in (*self.done, *failed))))

    def _fail(self, lanes: Lanes, runs: pl.DataFrame) -> None:
        """Record that runs among the lanes failed, as their rows say."""
        self.progress.advance(len(runs), f"({self._name})")
        spec = self.job.runs
        (number,) = spec.rounds
        at = " in the final round" if number == spec.final_round else f" in tuning round {number + 1}"
        if self._alone or lanes.end_setting - lanes.first_setting < len(self.cell.settings):
            at += f" at learning_rate {self.cell.settings[lanes.first_setting]['learning_rate']:g}"
        failure = Failure(*runs.select("outcome", "reason", "outcome_step").row(0))
        self.job.fail(f"{self._name}{at}, {len(runs)} of {len(self.lanes.pairs)} runs", failure)

    def _read(self, lanes: Lanes) -> RunTables:
        self.progress.advance(len(lanes.pairs), f"({self._name}, done before)")
        return RunTables(*(read([self._file(lanes, name)], name) for name in RunTables._fields))

    def _stored(self, table: str) -> list[Lanes]:
        """The lanes of the cell of which a table is stored; temporary names, which have a dot, are not."""
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
            self.kept_in / f"{self.key}-{lanes.numbers}",
            run,
            f"{self._name}, {len(lanes.pairs)} runs",
            every=EVERY if minutes is None else 60 * minutes,
        )

    @property
    def _name(self) -> str:
        method = Method(self.cell.optimizer.label, self.cell.basis.label)
        seed = f", seed {self.job.spec.seeds[0]}" if self._alone else ""
        return f"{method.label} on {self.cell.workload.name}{seed}"

    @property
    def _alone(self) -> bool:
        return self.job.runs.alone

    def _reporter(self, lanes: Lanes, steps: int) -> Callable[[int], None]:
        """Turns the steps done by lanes into their share of the job's work."""
        before, earlier = 0, self.job.clock.earlier

        def report(done: int) -> None:
            nonlocal before, earlier
            self.job.attendance.journal.step(done, self.job.clock.earlier - earlier)
            self.progress.advance(len(lanes.pairs) * (done - before) / steps)
            before, earlier = done, self.job.clock.earlier

        return report
