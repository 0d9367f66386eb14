"""The progress bar of long work: on a terminal only, unless it is asked for."""

from typing import Any

from tqdm import tqdm


def bar(
    total: int, title: str, *, initial: int = 0, unit: str = "step", progress: bool | None = None
) -> "tqdm[Any]":
    """A progress bar, a context manager that disappears at the end.

    Args:
        total: of the steps.
        title: what is being done.
        initial: the steps that were done before.
        unit: what is counted.
        progress: whether to show it; by default on a terminal only.
    """
    return tqdm(
        total=total,
        initial=initial,
        desc=title,
        unit=unit,
        disable=None if progress is None else not progress,
        dynamic_ncols=True,
        leave=False,
    )
