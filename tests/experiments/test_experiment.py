"""What all experiments share: jobs of a budget, results that are kept, tables."""

import dataclasses
import json
from collections.abc import Callable

import pytest

from calor.experiments import densities, earth, eeg, molecules, plane, rotations, taxi
from calor.experiments.experiment import Experiment, Settings, measured


@dataclasses.dataclass(frozen=True)
class Choices:
    steps: int = 3
    rule: Callable | None = None


def made_up(once, **more):
    budgets = {"quick": Settings(2, Choices()), "full": Settings(None, Choices(9), names=("c",))}
    given = {"budgets": budgets, "once": once, "table": str, "on_demand": ("far",), **more}
    return Experiment("made-up", ("a", "b"), ("slow", "fast"), **given)


def test_results_are_kept_and_continued(tmp_path):
    done = []

    def once(job):
        done.append((job.name, job.seed, job.method))
        if len(done) == 3:
            raise KeyboardInterrupt
        return {"value": job.choices.steps}

    experiment = made_up(once)
    settings = experiment.of("quick", None, None)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(settings, tmp_path, progress=False)
    report = experiment.run(settings, tmp_path, progress=False)
    assert done.count(("a", 1, "slow")) == 2
    assert len(done) == 9
    kept = json.loads((tmp_path / "made-up.json").read_text())
    assert kept == report
    assert kept["results"]["b"]["fast"] == {"0": {"value": 3}, "1": {"value": 3}}
    with pytest.raises(ValueError, match="has results of other settings"):
        experiment.run(dataclasses.replace(settings, choices=Choices(4)), tmp_path)
    # Results of a release that did not know one of the settings go on, unless it is used.
    del kept["identity"]["rule"]
    (tmp_path / "made-up.json").write_text(json.dumps(kept))
    assert experiment.run(settings, tmp_path, progress=False) == kept
    with pytest.raises(ValueError, match="has results of other settings"):
        experiment.run(dataclasses.replace(settings, choices=Choices(3, print)), tmp_path)
    assert measured(report, ["a", "z"], ["slow", "none"], "value", str) == [["slow", "[3, 3]", "–"]]


def test_jobs_of_a_budget(tmp_path):
    experiment = made_up(dict, sparing={"slow": ("a",)}, folds=lambda name, choices: 3)
    settings = experiment.of("quick", None, 5)
    jobs = [(job.name, job.seed, job.method) for job in experiment.jobs(settings, tmp_path)]
    assert jobs == [
        *[("a", seed, method) for seed in range(3) for method in ("slow", "fast")],
        *[("b", seed, "fast") for seed in range(3)],
    ]
    asked = dataclasses.replace(settings, methods=("slow",), names=("b",))
    assert len(experiment.jobs(asked, tmp_path)) == 3
    assert experiment.of("full", None, None).names == ("c",)
    assert experiment.of("quick", ["far"], None).names == ("far",)
    with pytest.raises(ValueError, match="made-up: known data sets are c, far, got 'a'"):
        experiment.of("full", ["a"], None)


@pytest.mark.parametrize("module", [earth, rotations, taxi, eeg, molecules, plane, densities])
@pytest.mark.parametrize("budget", ["quick", "default", "full"])
def test_budgets_have_an_identity_that_json_can_hold(module, budget):
    experiment = module.EXPERIMENT
    settings = experiment.of(budget, None, None)
    identity = experiment.identity(settings.choices)
    assert json.loads(json.dumps(identity)).keys() == identity.keys()
    assert set(settings.methods) <= set(experiment.methods)
