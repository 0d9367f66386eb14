"""Data sets of matrices, what models of them are compared with, experiments."""

import json
import os
import sys
import types

import numpy as np
import pytest

from calor import datasets
from calor.cli import main
from calor.data import tables
from calor.experiments import eeg, plane, rivals, taxi
from matrices import matrices

RNG = np.random.default_rng(0)


def recording(sessions=("0", "1", "2"), runs=("0", "1")):
    """Trials as a paradigm of moabb returns them: signals, labels, and a table about them."""
    rng = np.random.default_rng(5)
    about = {"subject": [], "session": [], "run": []}
    for subject in (1, 2):
        for session in sessions:
            for run in runs:
                for name, value in (("subject", subject), ("session", session), ("run", run)):
                    about[name] += [value] * 4
    count = len(about["run"])
    mixing = rng.normal(size=(5, 5))
    signals = np.einsum("ij,njs->nis", mixing, rng.normal(size=(count, 5, 80)))
    labels = np.array(["feet", "right_hand"] * (count // 2))
    return signals, labels, {name: np.array(values) for name, values in about.items()}


def test_recordings_become_covariances():
    from sklearn.covariance import oas

    signals, labels, about = recording()
    found, kept, groups = datasets.from_recordings(signals, labels, about, by_session=True)
    assert found.shape == (32, 5, 5)  # the third session is left out
    assert len(np.unique(groups)) == 4
    np.testing.assert_allclose(found[0], oas(signals[0].T)[0])
    found, kept, groups = datasets.from_recordings(signals, labels, about, by_session=False)
    assert (len(found), len(kept), len(np.unique(groups))) == (48, 48, 12)
    parts = eeg.folds("BNCI2014-002", groups)
    assert len(parts) == 5
    assert sorted(np.concatenate(parts)) == list(range(48))
    for part in parts:
        assert not set(groups[part]) & set(np.delete(groups, part))


def test_moabb_is_asked_by_the_protocol(monkeypatch):
    asked = []
    package = types.ModuleType("moabb")
    package.datasets = types.ModuleType("moabb.datasets")
    package.paradigms = types.ModuleType("moabb.paradigms")
    package.datasets.BNCI2015_001 = lambda: "recordings of 2015-001"

    class MotorImagery:
        def get_data(self, source):
            asked.append(source)
            return recording()

    package.paradigms.MotorImagery = MotorImagery
    for name in ("moabb", "moabb.datasets", "moabb.paradigms"):
        module = package if name == "moabb" else getattr(package, name.split(".")[1])
        monkeypatch.setitem(sys.modules, name, module)
    found, labels, _ = datasets.moabb("BNCI2015-001")
    assert asked == ["recordings of 2015-001"]
    assert len(found) == len(labels) == 32
    with pytest.raises(ValueError, match="known are BNCI2014-002 and BNCI2015-001"):
        datasets.moabb("BNCI2014-001")


def test_moabb_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "moabb.datasets", None)
    with pytest.raises(datasets.DataError, match=r"calor\[eeg\]"):
        datasets.moabb("BNCI2014-002")


def test_charts_of_rivals_lead_back():
    values = matrices(6, 3)
    chart = rivals.LogEuclidean(values)
    inside = chart.inside(values)
    np.testing.assert_allclose(inside.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(chart.outside(inside), values, rtol=1e-9)
    triangle = rivals.Triangle(values)
    np.testing.assert_allclose(triangle.outside(triangle.inside(values)), values, rtol=1e-9)
    standard = rivals.Standardized(triangle, values)
    np.testing.assert_allclose(standard.inside(values).std(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(standard.outside(standard.inside(values)), values, rtol=1e-9)
    assert np.all(np.linalg.eigvalsh(triangle.outside(5 * RNG.normal(size=(9, 6)))) > 0)


@pytest.mark.parametrize("draw", [rivals.linear_regression, rivals.extra_trees])
def test_regressions_follow_the_predictors(draw):
    values = matrices(80, 2, 0.05)
    predictors = RNG.uniform(-1, 1, size=(80, 3))
    values = values * np.exp(predictors[:, :1, None])
    drawn = draw(predictors[:60], values[:60], predictors[60:], 20, 0)
    drawn = drawn[0] if isinstance(drawn, tuple) else drawn
    assert drawn.shape == (20, 20, 2, 2)
    means = rivals.metrics.frechet_means(drawn)
    seen = np.log(np.linalg.det(means)) / 2
    assert np.corrcoef(seen, predictors[60:, 0])[0, 1] > 0.9


def test_gaussian_by_class():
    values = np.concatenate([matrices(30, 2), 9 * matrices(30, 2)])
    labels = np.repeat(["a", "b"], 30)
    made = rivals.gaussian_by_class(values, labels, 0)
    ratio = np.linalg.det(made[30:]).mean() / np.linalg.det(made[:30]).mean()
    assert 30 < ratio < 200


def test_one_label_in_a_file(tmp_path):
    np.save(tmp_path / "one.npy", np.array([[2]]))
    assert tables.read_condition(tmp_path / "one.npy", labels=True).tolist() == [2]
    for wrong in (np.nan, np.inf, 2.5, 1e20):
        np.save(tmp_path / "wrong.npy", np.array([1.0, wrong]))
        with pytest.raises(
            tables.TableError, match=f"row 1: a label .* got {wrong}".replace("+", ".")
        ):
            tables.read_condition(tmp_path / "wrong.npy", labels=True)


def test_tables_of_some_methods():
    report = {"results": {"6": {"labelled": {"0": {"energy_distance": 0.001}}}, "8": {}}}
    report["results"]["8"] = {"real clouds": {"0": {"energy_distance": 0.002}}}
    lines = plane.EXPERIMENT.table(report).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "real clouds",
        "–",
        "2.00 (2.00)",
    ]
    run = dict.fromkeys(eeg.COLUMNS, 0.5) | {"seconds": 1.0}
    report = {"results": {"gestures": {"calor": {"0": run, "1": run}, "real data": {"0": run}}}}
    found = eeg.EXPERIMENT.table(report)
    assert "gestures, 2 folds" in found
    assert "real data (1 of 2)" in found


def test_experiments_refuse_what_they_do_not_know(capsys):
    with pytest.raises(ValueError, match="taxi: known data sets are random, contiguous"):
        taxi.EXPERIMENT.of("quick", ["mars"], None)
    with pytest.raises(ValueError, match="eeg: seeds must be at least 1"):
        eeg.EXPERIMENT.of("quick", None, 0)
    assert main(["reproduce", "eeg", "--methods", "calor", "magic"]) == 2
    assert "--methods: known are calor; calor's first guess alone;" in capsys.readouterr().err
    parts = taxi.folds("random", 23)
    assert sorted(np.concatenate(parts)) == list(range(23))


@pytest.mark.slow
@pytest.mark.skipif("CALOR_DATA" not in os.environ, reason="CALOR_DATA is not set")
@pytest.mark.parametrize("experiment", ["taxi", "eeg"])
def test_reproduce_quickly(experiment, tmp_path, capsys):
    only = ["random"] if experiment == "taxi" else ["fists or feet"]
    arguments = ["reproduce", experiment, "--budget", "quick", "--only", *only]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "calor" in capsys.readouterr().out
    results = json.loads((tmp_path / f"{experiment}.json").read_text())["results"]
    assert set(results[only[0]]) == set((taxi if experiment == "taxi" else eeg).METHODS)


def test_condition_and_groups_as_arrays_of_the_same_file(tmp_path, monkeypatch, capsys):
    """`calor fit data.npz --condition predictors` finds points and predictors by themselves."""
    from calor.models import fitting

    seen = {}

    def fit(kernel, points, *, condition, groups, **more):
        seen.update(points=points, condition=condition, groups=groups)
        raise ValueError("enough")

    monkeypatch.setattr(fitting, "fit", fit)
    values, predictors = matrices(12, 2), RNG.normal(size=(12, 3))
    file = tmp_path / "data.npz"
    runs = np.repeat(["first", "second"], 6)
    np.savez(file, predictors=predictors, spd=values, runs=runs, halves=np.full(12, 0.5))
    arguments = ["fit", "--manifold", "spd:2", str(file), "--condition", "predictors"]
    arguments += ["--out", str(tmp_path / "a.calor")]
    assert main(arguments) == 2
    np.testing.assert_allclose(seen["points"], values)
    np.testing.assert_allclose(seen["condition"], predictors)
    assert seen["groups"] is None
    assert main([*arguments, "--groups", "runs"]) == 2
    np.testing.assert_array_equal(seen["groups"], runs)
    (tmp_path / "runs.csv").write_text("\n".join(runs))
    assert main([*arguments, "--groups", str(tmp_path / "runs.csv")]) == 2
    np.testing.assert_array_equal(seen["groups"], runs)
    capsys.readouterr()
    for given, message in (
        ("halves", "row 0: a label must be a whole"),
        ("spd", "one label a row"),
    ):
        assert main([*arguments, "--groups", given]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "runs.csv").write_text("\n".join(runs[1:]))
    assert main([*arguments, "--groups", str(tmp_path / "runs.csv")]) == 2
    assert "runs.csv has 11 rows" in capsys.readouterr().err
