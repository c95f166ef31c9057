"""Samples for linear models: their shapes, marginals and classes, the same for each seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import skew
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

from trepak.models.linear import HIGGS_FEATURES, criteo_shaped, higgs_shaped

# Of UCI's HIGGS, by column: momenta, b-tags, masses.
MOMENTA = [0, 3, 5, 9, 13, 17]
TAGS = {8: 1.086, 12: 1.107, 16: 1.274, 20: 1.551}
MASSES = range(21, 28)


def test_collisions_are_functions_of_the_seed_alone() -> None:
    rows, classes = higgs_shaped(3000, seed=4)
    assert rows.shape == (3000, HIGGS_FEATURES) and rows.dtype == np.float32
    assert set(np.unique(classes)) == {0, 1} and classes.mean() == pytest.approx(0.53, abs=0.04)
    fewer = higgs_shaped(1000, seed=4)
    assert np.array_equal(fewer[0], rows[:1000]) and np.array_equal(fewer[1], classes[:1000])
    assert not np.array_equal(higgs_shaped(1000, seed=5)[0], fewer[0])


def test_collisions_have_physical_marginals() -> None:
    rows, _ = higgs_shaped(20_000)
    assert np.isfinite(rows).all()
    positive = [*MOMENTA, *MASSES]
    assert (rows[:, positive] > 0).all()
    assert rows[:, positive].mean(axis=0) == pytest.approx(1.0, abs=0.15)
    assert (skew(rows[:, MOMENTA]) > 1).all()
    for column, half in TAGS.items():
        assert np.unique(rows[:, column]) == pytest.approx([0, half, 2 * half], rel=1e-5)
    angles = rows[:, [2, 4, 7, 11, 15, 19]]
    assert abs(angles).max() <= 1.733 and angles.std(axis=0) == pytest.approx(1.0, abs=0.02)


def test_collisions_are_correlated_as_masses_follow_from_momenta() -> None:
    rows, _ = higgs_shaped(20_000)
    correlations = np.corrcoef(rows.T)
    assert (correlations[np.ix_(MOMENTA, MOMENTA)] > 0.3).all()
    assert correlations[25, 5] > 0.2  # m_bb and a jet's momentum: of one hard collision
    assert correlations[26, 27] > 0.5  # m_wbb and m_wwbb


def test_a_linear_model_is_right_about_as_often_as_with_higgs() -> None:
    rows, classes = higgs_shaped(60_000)
    rows = StandardScaler().fit_transform(rows)
    model = LogisticRegression().fit(rows[:40_000], classes[:40_000])
    assert model.score(rows[40_000:], classes[40_000:]) == pytest.approx(0.64, abs=0.02)


def test_clicks_are_rows_of_one_norm() -> None:
    rows, classes = criteo_shaped(3000, seed=2)
    assert rows.shape[0] == 3000 and 0.9e6 < rows.shape[1] < 1.1e6
    assert rows.dtype == np.float32 and rows.indices.dtype == np.int32
    assert (np.diff(rows.indptr) == 39).all() and rows.has_canonical_format
    assert np.asarray(rows.multiply(rows).sum(axis=1)) == pytest.approx(1.0, rel=1e-5)
    assert set(np.unique(classes)) == {0, 1} and classes.mean() == pytest.approx(0.25, abs=0.04)
    fewer = criteo_shaped(1000, seed=2)
    assert (fewer[0] != rows[:1000]).nnz == 0 and np.array_equal(fewer[1], classes[:1000])
    assert (criteo_shaped(1000, seed=3)[0] != fewer[0]).nnz > 0


def test_clicks_can_be_learned() -> None:
    rows, classes = criteo_shaped(60_000)
    model = SGDClassifier(loss="log_loss", alpha=1e-5, random_state=0)
    model.fit(rows[:50_000], classes[:50_000])
    assert model.score(rows[50_000:], classes[50_000:]) > 1 - classes[50_000:].mean() + 0.01


@pytest.mark.parametrize("make", [higgs_shaped, criteo_shaped])
def test_there_is_a_sample(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="samples=0"):
        make(0)
