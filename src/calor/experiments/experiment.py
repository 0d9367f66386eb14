"""What an experiment is: data sets, methods, budgets, one run of a method, and a table.

Each result is kept as soon as it is there; a table has means and their standard errors.
"""

import dataclasses
import datetime
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np

from ..core.bar import bar
from ..store.atomic import replacing

C = TypeVar("C")
T = TypeVar("T")


def hardware() -> str:
    """The machine, for the head of a report."""
    return f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__}"


@dataclasses.dataclass(frozen=True)
class Settings(Generic[C]):
    """What is run, and how much of it."""

    seeds: int | None
    """How many splits of the data; all folds if None."""
    choices: C
    """What an experiment has to choose, a frozen dataclass of its own."""
    names: tuple[str, ...] = ()
    """The data sets; in a budget, those of the experiment if there are none."""
    methods: tuple[str, ...] = ()
    """The methods, likewise."""


class Job(NamedTuple, Generic[C]):
    """One run: a method on a data set, with a seed or on a fold."""

    name: str
    seed: int
    method: str
    choices: C
    out: Path
    """A folder for figures."""


def _continues(kept: Any, asked: Any) -> bool:
    """Whether settings are those of kept results, but for later ones that are not used."""
    if not isinstance(kept, dict) or not isinstance(asked, dict):
        return kept == asked
    known = all(key in asked and _continues(value, asked[key]) for key, value in kept.items())
    return known and not any(value for key, value in asked.items() if key not in kept)


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[C]):
    """Every method on every data set, with every seed, and a table of what came out."""

    title: str
    """As it is called on the command line; its results are in the file of that name."""
    names: tuple[str, ...]
    """Its data sets."""
    methods: tuple[str, ...]
    """The rows of its table."""
    budgets: Mapping[str, Settings[C]]
    """By the names `quick`, `default` and `full`."""
    once: Callable[[Job[C]], dict[str, Any]]
    """Runs one job and returns its result."""
    table: Callable[[dict[str, Any]], str]
    """The results as Markdown."""
    kind: str = "data sets"
    """What the names are names of."""
    on_demand: tuple[str, ...] = ()
    """Data sets that are run only if they are asked for."""
    sparing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Methods that run on some data sets only, unless methods are asked for."""
    folds: Callable[[str, C], int] | None = None
    """How many folds a data set has; without it there are as many splits as one likes."""
    identity: Callable[[Any], dict[str, Any]] = dataclasses.asdict
    """What results depend on; those of other settings are not overwritten."""
    finish: Callable[[dict[str, Any], Settings[C], Path], None] | None = None
    """Adds to the report, and draws what is about all of it."""

    def of(self, budget: str, only: Sequence[str] | None, seeds: int | None) -> Settings[C]:
        """The settings of a budget; an error names what is unknown.

        Args:
            budget: `quick`, `default` or `full`.
            only: some of the data sets.
            seeds: how many splits or folds.
        """
        usual = self.budgets[budget]
        known = (usual.names or self.names) + self.on_demand
        unknown = [name for name in only or () if name not in known]
        if unknown:
            raise ValueError(
                f"{self.title}: known {self.kind} are {', '.join(known)}, got {unknown[0]!r}."
            )
        if seeds is not None and seeds < 1:
            raise ValueError(f"{self.title}: seeds must be at least 1, got {seeds}.")
        return dataclasses.replace(
            usual,
            seeds=seeds or usual.seeds,
            names=tuple(only or usual.names or self.names),
            methods=usual.methods or self.methods,
        )

    def jobs(self, settings: Settings[C], out: Path) -> list[Job[C]]:
        """All jobs, in their order."""
        spared = self.sparing if settings.methods == self.methods else {}
        jobs = []
        for name in settings.names:
            counts = [settings.seeds] if settings.seeds else []
            counts += [self.folds(name, settings.choices)] if self.folds else []
            methods = [each for each in settings.methods if name in spared.get(each, (name,))]
            pairs = itertools.product(range(min(counts)), methods)
            jobs += [Job(name, seed, method, settings.choices, out) for seed, method in pairs]
        return jobs

    def run(self, settings: Settings[C], out: Path, progress: bool | None = None) -> dict[str, Any]:
        """Run job by job; results go to `out` as JSON and figures.

        A run that was interrupted goes on: what is in `out` already is not computed again.

        Args:
            settings: of a budget.
            out: a folder.
            progress: whether to show a progress bar; by default on a terminal only.
        """
        path = out / f"{self.title}.json"
        identity = self.identity(settings.choices)
        # Functions are told by their names.
        identity = json.loads(json.dumps(identity, default=lambda value: value.__qualname__))
        today = datetime.date.today().isoformat()
        report = {"date": today, "hardware": hardware(), "identity": identity, "results": {}}
        if path.is_file():
            report = json.loads(path.read_text())
            if not _continues(report.get("identity"), identity):
                raise ValueError(f"{path} has results of other settings; choose another folder.")
        jobs = self.jobs(settings, out)
        with bar(len(jobs), self.title, unit="run", progress=progress) as shown:
            for job in jobs:
                done = report["results"].setdefault(job.name, {}).setdefault(job.method, {})
                if str(job.seed) not in done:
                    done[str(job.seed)] = self.once(job)
                    _write(path, report)
                    # Every fit compiles its own programs; after some seventy of them a process may
                    # have no room for more.
                    jax.clear_caches()
                shown.update()
        if self.finish is not None:
            self.finish(report, settings, out)
            _write(path, report)
        return report


def _write(path: Path, report: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(report, indent=1).encode())


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """The value of a function and the seconds it took."""
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def save_figure(path: Path, draw: Callable[[Any], Any]) -> None:
    """Write the figure that `draw` makes with `calor.plots`, where matplotlib is installed."""
    try:
        from .. import plots
    except ImportError:
        return
    with replacing(path) as file:
        draw(plots).savefig(file, format="png", dpi=110)


def summary(values: Sequence[float]) -> str:
    """The mean and its standard error."""
    mean = f"{np.mean(values):.3f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def results_of(report: dict[str, Any], name: str, method: str) -> list[dict[str, Any]]:
    """The results of a method on a data set, of all seeds."""
    return list(report["results"].get(name, {}).get(method, {}).values())


def likelihoods(
    report: dict[str, Any],
    titles: Mapping[str, str],
    methods: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
) -> str:
    """Test log-likelihoods as a Markdown table, published figures first.

    Args:
        report: what an experiment returned.
        titles: of the columns, by the name of the data set.
        methods: the rows.
        published: figures of others, by source and data set.
    """
    names = [name for name in titles if name in report["results"]]
    rows = [
        [source, *(f"{figures[name]:.2f}" if name in figures else "–" for name in names)]
        for source, figures in published.items()
    ]
    header = ["test log-likelihood", *(titles[name] for name in names)]
    return markdown(header, rows + measured(report, names, methods, "log_prob", summary))


def measured(
    report: dict[str, Any],
    names: Sequence[str],
    methods: Sequence[str],
    column: str,
    cell: Callable[[list[float]], str],
) -> list[list[str]]:
    """Rows of a table, one for each method that was run, one column for each data set."""
    rows = []
    for method in methods:
        values = [[run[column] for run in results_of(report, name, method)] for name in names]
        if any(values):
            rows.append([method, *(cell(found) if found else "–" for found in values)])
    return rows


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of equal width."""
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)
