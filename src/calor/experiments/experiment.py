"""What experiments share: rows of a table with their standard errors, and where they are kept."""

import datetime
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from ..store.atomic import replacing


def hardware() -> str:
    """The machine, for the head of a report."""
    return f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__}"


def write_json(path: Path, report: dict) -> None:
    """Write a report, whole or not at all."""
    with replacing(path) as file:
        file.write(json.dumps(report, indent=1).encode())


class Plan(NamedTuple):
    """What an experiment runs: every method on every data set, with every seed."""

    names: Sequence[str]
    seeds: int
    methods: Sequence[str]

    def jobs(self) -> list[tuple[str, int, str]]:
        """Data set, seed and method of each run."""
        return list(itertools.product(self.names, range(self.seeds), self.methods))


def resumable(
    path: Path,
    identity: dict,
    plan: Plan,
    once: Callable[[str, int, str], dict],
    progress: bool | None,
) -> dict:
    """Run a plan job by job, keeping each result; go on from what is there.

    Args:
        path: the file that results are kept in.
        identity: the settings; results of others are not overwritten.
        plan: what to run.
        once: runs one job and returns its result.
        progress: whether to show a progress bar; by default on a terminal only.
    """
    identity = json.loads(json.dumps(identity))
    report = {"date": today(), "hardware": hardware(), "identity": identity, "results": {}}
    if path.is_file():
        report = json.loads(path.read_text())
        if report.get("identity") != identity:
            raise ValueError(f"{path} has results of other settings; choose another folder.")
    disable = None if progress is None else not progress
    for name, seed, method in tqdm(plan.jobs(), desc=path.stem, disable=disable, leave=False):
        done = report["results"].setdefault(name, {}).setdefault(method, {})
        if str(seed) not in done:
            done[str(seed)] = once(name, seed, method)
            write_json(path, report)
            # Every fit compiles its own programs; after some seventy of them a process may have no
            # room for more.
            jax.clear_caches()
    return report


def chosen(
    experiment: str,
    only: Sequence[str] | None,
    names: Sequence[str],
    seeds: int | None,
    kind: str = "data sets",
) -> tuple[str, ...]:
    """The data sets (or another kind) to run, all by default; an error names what is unknown."""
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise ValueError(f"{experiment}: known {kind} are {', '.join(names)}, got {unknown[0]!r}.")
    if seeds is not None and seeds < 1:
        raise ValueError(f"{experiment}: seeds must be at least 1, got {seeds}.")
    return tuple(only or names)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
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


def today() -> str:
    """The date, for the head of a report."""
    return datetime.date.today().isoformat()


def summary(values: Sequence[float]) -> str:
    """The mean and its standard error."""
    mean = f"{np.mean(values):.3f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def table(
    report: dict,
    titles: Mapping[str, str],
    methods: Sequence[str],
    published: Mapping[str, Mapping[str, float]],
) -> str:
    """The results as a Markdown table, published figures first.

    Args:
        report: what `resumable` returned.
        titles: of the columns, by the name of the data set.
        methods: the rows.
        published: figures of others, by source and data set.
    """
    results = report["results"]
    names = [name for name in titles if name in results]
    rows = [
        [source, *(f"{figures[name]:.2f}" if name in figures else "–" for name in names)]
        for source, figures in published.items()
    ]
    for method in methods:
        cells = [results[name].get(method, {}).values() for name in names]
        if any(cells):
            values = [[run["log_prob"] for run in cell] for cell in cells]
            rows.append([method, *(summary(v) if v else "–" for v in values)])
    return markdown(["test log-likelihood", *(titles[name] for name in names)], rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of equal width."""
    cells = [list(header), ["---"] * len(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "| "
        + " | ".join(
            "-" * width if cell == "---" else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        + " |"
        for row in cells
    )
