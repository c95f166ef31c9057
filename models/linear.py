"""Generated samples for linear models, shaped like two of LIBSVM's data sets: Higgs and Criteo.

Chicle's Table 1 has both. Sample i is a function of the seed and i alone, so the first n of more
samples are the same ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trepak.models.clicks import ClickStream, criteo_vocabularies

Array = np.ndarray[Any, Any]

HIGGS_FEATURES = 28
_JETS = 4
_B_TAGS = (1.086, 1.107, 1.274, 1.551)  # what half of a sure tag is, by jet
_TAGGED = (0.56, 0.80)  # up to there a uniform number is no tag, and half of one
_SIGNAL = 0.53  # the share of signals in UCI's data set

_CRITEO_COUNTS = 13
_BINS = 16  # of a count, by the square of its logarithm, as the competition's winners had them
_VOCABULARY = 0.03  # of Criteo's 33.8 million ids, which leaves the million that LIBSVM has


def higgs_shaped(samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Returns collisions, signals of a Higgs boson among them, shaped like UCI's HIGGS.

    The 21 momenta, angles and b-tags of a lepton, the missing energy and four jets, and seven
    masses that follow from them. Momenta and masses are skewed and about 1 on average. A signal's
    masses are smaller and its jets are softer. A linear model is right in about 64% of cases.

    Args:
        samples: how many, n.
        seed: of everything.

    Returns:
        float32, (n, 28), in the order of UCI's columns; and int64, (n,): 1 for a signal, else 0.

    Raises:
        ValueError: `samples` is below 1.
    """
    _check(samples)
    # One generator for each kind of draw, sample by sample: more samples leave the first as they
    # are.
    gaussian, even = (np.random.default_rng([seed, kind]) for kind in (0, 1))
    normal = gaussian.standard_normal((samples, 21))
    uniform = even.random((samples, 11))
    signal = (uniform[:, 0] < _SIGNAL).astype(np.int64)
    sign = 2 * signal - 1

    hardness = normal[:, 0]  # of the whole collision
    momenta = np.exp(0.35 * hardness[:, None] + 0.4 * normal[:, 1:7] - 0.14)
    momenta[:, 2:] *= np.exp(-0.01 * sign)[:, None]
    polar = normal[:, 7:12] * np.where(sign > 0, 0.92, 1.05)[:, None]  # of the lepton and the jets
    azimuths = np.pi * (2 * uniform[:, 1:7] - 1)
    draws = uniform[:, 7:]
    tags = np.asarray(_B_TAGS) * sum((draws > edge).astype(float) for edge in _TAGGED)

    lepton, missing, jets = momenta[:, 0], momenta[:, 1], momenta[:, 2:]
    columns = [lepton, polar[:, 0], azimuths[:, 0] / 1.814, missing, azimuths[:, 1] / 1.814]
    for jet in range(_JETS):
        of_jet = (jets[:, jet], polar[:, 1 + jet], azimuths[:, 2 + jet] / 1.814, tags[:, jet])
        columns += of_jet
    columns += _masses(momenta, polar, azimuths, sign, normal[:, 12:19])
    return np.stack(columns, axis=1).astype(np.float32), signal


def _masses(
    momenta: Array, polar: Array, azimuths: Array, sign: Array, normal: Array
) -> list[Array]:
    """Returns m_jj, m_jjj, m_lv, m_jlv, m_bb, m_wbb and m_wwbb: float64, (n,) each.

    Args:
        momenta: of the lepton, the missing energy and the jets, (n, 6).
        polar: pseudorapidities of the lepton and the jets, (n, 5); none is of the missing energy.
        azimuths: angles of all six, (n, 6).
        sign: 1 for a signal, −1 for background.
        normal: what a detector adds, (n, 7).
    """
    rapidity = np.concatenate([polar[:, :1], 0 * polar[:, :1], polar[:, 1:]], axis=1)
    parts = ((2, 3), (2, 3, 4), (0, 1), (0, 1, 2), (4, 5), (2, 3, 4, 5), (0, 1, 2, 3, 4, 5))
    # How wide each mass is, and by how much a signal's is smaller.
    powers = (0.8, 0.6, 0.2, 0.7, 0.7, 0.55, 0.45)
    shifts = (0.0, 0.0, 0.0, 0.01, 0.03, 0.025, 0.025)
    found = []
    for members, power, shift, noise in zip(parts, powers, shifts, normal.T, strict=True):
        squared = sum(
            2
            * momenta[:, one]
            * momenta[:, other]
            * (
                np.cosh(np.clip(rapidity[:, one] - rapidity[:, other], -4, 4))
                - np.cos(azimuths[:, one] - azimuths[:, other])
            )
            for place, one in enumerate(members)
            for other in members[place + 1 :]
        )
        pairs = len(members) * (len(members) - 1) / 2
        mass = np.sqrt(squared / (4 * pairs))  # of two momenta of 1 at right angles it is below 1
        found.append(mass**power * np.exp(0.08 * noise - shift * sign))
    return found


def criteo_shaped(samples: int, seed: int = 0) -> tuple[Any, Array]:
    """Returns clicks on advertisements as LIBSVM's criteo has them: 39 ones in each sparse row.

    Of each of 13 counts and 26 categorical features one column is set. Counts are in bins, and
    ids are those of `ClickStream`, with 3% of the Kaggle data set's vocabularies. All values of a
    row are the same, and its norm is 1.

    Args:
        samples: how many, n.
        seed: of everything.

    Returns:
        A SciPy CSR array of float32, (n, about a million); and int64, (n,): 1 for a click, else 0.

    Raises:
        ValueError: `samples` is below 1.
    """
    from scipy.sparse import csr_array

    _check(samples)
    vocabularies = criteo_vocabularies(_VOCABULARY)
    clicks = ClickStream(vocabularies, numerical=_CRITEO_COUNTS, seed=seed).samples(
        np.arange(samples)
    )
    logarithms = np.log1p(clicks.counts.T)
    bins = np.minimum((logarithms**2).astype(np.int64), _BINS - 1)
    sizes = [_BINS] * _CRITEO_COUNTS + list(vocabularies.values())
    starts = np.cumsum([0, *sizes])
    columns = np.concatenate([bins, clicks.ids.T], axis=1) + starts[:-1]
    width = columns.shape[1]
    values = np.full(columns.size, 1 / np.sqrt(width), np.float32)
    rows = np.arange(0, columns.size + 1, width)
    matrix = csr_array(
        (values, columns.ravel().astype(np.int32), rows.astype(np.int32)),
        shape=(samples, int(starts[-1])),
    )
    return matrix, clicks.labels.astype(np.int64)


def _check(samples: int) -> None:
    if samples < 1:
        raise ValueError(f"there is at least one sample, got samples={samples}.")
