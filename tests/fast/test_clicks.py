"""Generated clicks: their distribution, their repetitions, the planted labels, the ranks' parts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from undisturbed import undisturbed

from trepak.models import counter_random
from trepak.models.auc import auc, best_auc
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.models.power_law import PowerLaw

SMALL = {"C1": 1000, "C2": 3, "C3": 50}
SIGMAS = 5.0  # how far from its expectation a count may be: 1 run in 1.7 million is further


def drawn(stream: ClickStream, samples: int, first: int = 0) -> Any:
    return stream.samples(np.arange(first, first + samples))


def test_counters_give_the_published_numbers_of_splitmix64() -> None:
    got = counter_random.bits(np.array(1234567, np.uint64), np.arange(5))
    assert got.tolist() == [
        *(6457827717110365317, 3203168211198807973, 9817491932198370423),
        *(4593380528125082431, 16408922859458223821),
    ]


def test_streams_differ_by_seed_and_purpose() -> None:
    seeds = [counter_random.streams(s, p, 3) for s in (0, 1) for p in ("ids", "counts", "a longer")]
    assert len(np.unique(seeds)) == 18
    assert np.array_equal(counter_random.streams(1, "ids", 5)[:3], seeds[3])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.05, 2.0])
def test_ranks_invert_the_hit_share(exponent: float) -> None:
    law = PowerLaw(1000, exponent)
    shares = law.hit_share(np.arange(1001))
    assert shares[0] == 0 and shares[-1] == 1
    assert law.probabilities().sum() == pytest.approx(1)
    # p falls like r^−s: between rows 100 and 999 by a factor of about 10^s.
    falls = law.probabilities()[[99, 999]]
    assert falls[0] / falls[1] == pytest.approx((1000.5 / 100.5) ** exponent, rel=1e-3)
    edge = 1e-9 * np.diff(shares)
    assert law.rank(shares[:-1] + edge).tolist() == list(range(1000))
    assert law.rank(shares[1:] - edge).tolist() == list(range(1000))
    assert law.rank(np.array([1 - 2.0**-53])) == 999


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.05])
def test_ids_follow_the_power_law(exponent: float) -> None:
    stream = ClickStream(SMALL, exponent=exponent, reuse=0.0)
    ids = drawn(stream, 100_000).ids
    for feature, row in zip(SMALL, ids, strict=True):
        expected = stream.probabilities(feature) * ids.shape[1]
        assert expected.min() > 5  # else the sum below is no χ²
        counts = np.bincount(row, minlength=SMALL[feature])
        squares = np.sum((counts - expected) ** 2 / expected)
        freedom = len(expected) - 1
        assert abs(squares - freedom) < SIGMAS * np.sqrt(2 * freedom) + SIGMAS


def test_the_hottest_ids_are_spread_over_the_table() -> None:
    stream = ClickStream(SMALL)
    hottest = stream.hottest("C1", 1000)
    assert sorted(hottest) == list(range(1000))
    probabilities = stream.probabilities("C1")[hottest]
    assert (np.diff(probabilities) < 0).all()
    assert probabilities[:10].sum() == pytest.approx(stream.popularity("C1").hit_share(10))
    # The first 100 are in every tenth of the table.
    assert set(hottest[:100] // 100) == set(range(10))


def test_repetitions_keep_the_power_law() -> None:
    reuse = 0.5
    stream = ClickStream(SMALL, reuse=reuse, window=200)
    row = drawn(stream, 100_000).ids[0]
    for top in (1, 10, 100):
        share = stream.popularity("C1").hit_share(top)
        found = np.isin(row, stream.hottest("C1", top)).mean()
        # Samples with one origin are a branching process, whose size S has, with a mean of
        # `reuse` children, E[S²] / E[S] = (1 − reuse)^−2: the variance grows so many times.
        error = np.sqrt(share * (1 - share) / len(row)) / (1 - reuse)
        assert abs(found - share) < SIGMAS * error


def test_ids_seen_lately_come_again() -> None:
    reuse, window, samples = 0.3, 1000, 50_000
    # All alike and very many: who comes again was repeated.
    stream = ClickStream({"C1": 2**31 - 1}, exponent=0.0, reuse=reuse, window=window)
    row = drawn(stream, samples).ids[0]
    order = np.argsort(row, kind="stable")
    distances = np.full(samples, samples)
    same = row[order[1:]] == row[order[:-1]]
    distances[order[1:][same]] = (order[1:] - order[:-1])[same]
    late = distances[window:]  # before, what is repeated may not be in the sample
    again = np.mean(late <= window)
    assert abs(again - reuse) < SIGMAS * np.sqrt(reuse * (1 - reuse) / len(late))
    # P(d ≤ k) = log(k + 1) / log(window + 1); the last time can only be nearer.
    near = np.mean(late[late <= window] <= 30)
    wanted = np.log(31) / np.log(window + 1)
    assert wanted - SIGMAS * np.sqrt(wanted / (reuse * len(late))) < near < wanted + 0.1


def test_a_sample_depends_on_its_index_alone() -> None:
    stream = ClickStream(criteo_vocabularies(1e-3), seed=3)
    indices = np.random.default_rng(0).permutation(3000)
    shuffled, ordered = stream.samples(indices), drawn(stream, 3000)
    again = ClickStream(criteo_vocabularies(1e-3), seed=3)
    alone = [again.samples([index]) for index in range(100)]
    other = drawn(ClickStream(criteo_vocabularies(1e-3), seed=4), 3000)
    for name in ("ids", "counts", "probabilities", "labels"):
        mine = getattr(ordered, name)
        assert np.array_equal(getattr(shuffled, name), mine[..., indices])
        parts = [getattr(one, name) for one in alone]
        assert np.array_equal(np.concatenate(parts, axis=-1), mine[..., :100])
        assert not np.array_equal(getattr(other, name), mine)


def test_ranks_share_the_batches_of_one_process() -> None:
    stream = ClickStream(SMALL)
    samples, first = 130, 7  # 10 are left over
    clicks = drawn(stream, 120, first)
    for size, batch_size in ((1, 60), (1, 12), (3, 20), (4, 10)):
        ranks = [
            list(stream.dataset(samples, batch_size, rank=rank, size=size, first=first))
            for rank in range(size)
        ]
        for step, parts in enumerate(zip(*ranks, strict=True)):
            at = slice(step * size * batch_size, (step + 1) * size * batch_size)
            for rank, (inputs, labels) in enumerate(parts):
                mine = (..., slice(rank, None, size))
                assert labels.shape == (batch_size, 1) and labels.dtype == "float32"
                assert np.array_equal(labels[:, 0], clicks.labels[at][mine])
                for row, feature in enumerate(SMALL):
                    ids = inputs["categorical"][feature]
                    assert ids.shape == (batch_size,) and ids.dtype == "int32"
                    assert np.array_equal(ids, clicks.ids[row, at][mine])
                counts = clicks.counts[:, at][mine].T
                assert inputs["numerical"].shape == (batch_size, 13)
                assert np.array_equal(inputs["numerical"], np.log1p(counts).astype(np.float32))
        assert len(ranks[0]) == 120 // (size * batch_size)


def test_without_counts_there_is_no_such_input() -> None:
    inputs, _ = next(iter(ClickStream(SMALL, numerical=0).dataset(8, 8)))
    assert set(inputs) == {"categorical"}


def standard_error(scores: Any, labels: Any) -> float:
    """DeLong's, of an empirical AUC without ties."""
    clicked, missed = np.sort(scores[labels == 1]), np.sort(scores[labels == 0])
    below = np.searchsorted(missed, clicked) / len(missed)
    above = 1 - np.searchsorted(clicked, missed) / len(clicked)
    return float(np.sqrt(below.var() / len(clicked) + above.var() / len(missed)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drawn_labels_have_the_planted_auc(seed: int) -> None:
    clicks = drawn(ClickStream(criteo_vocabularies(1e-3), seed=seed), 50_000)
    best = best_auc(clicks.probabilities)
    error = standard_error(clicks.probabilities, clicks.labels)
    assert 0.001 < error < 0.003
    assert abs(auc(clicks.probabilities, clicks.labels) - best) < SIGMAS * error
    assert 0.8 < best < 0.84
    # Others than the true scores are worse.
    noise = np.random.default_rng(0).normal(size=len(clicks.labels))
    logits = np.log(clicks.probabilities / (1 - clicks.probabilities))
    assert auc(logits + noise, clicks.labels) < best - SIGMAS * error


def test_click_rate_and_spread_are_those_asked_for() -> None:
    clicks = drawn(ClickStream(SMALL, click_rate=0.1, spread=0.8, reuse=0.0), 50_000)
    p = clicks.probabilities
    # What they were fitted to is a sample of 2^14.
    error = p.std() * np.sqrt(2**-14 + 1 / len(p))
    assert abs(p.mean() - 0.1) < SIGMAS * error
    assert abs(clicks.labels.mean() - p.mean()) < SIGMAS * np.sqrt(0.09 / len(p))
    assert np.log(p / (1 - p)).std() == pytest.approx(0.8, rel=0.05)


def test_auc_counts_pairs() -> None:
    random = np.random.default_rng(0)
    scores = random.integers(0, 20, 300) / 20  # with ties
    labels = random.integers(0, 2, 300)
    above = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    wanted = above[labels == 1][:, labels == 0].mean()
    assert auc(scores, labels) == pytest.approx(wanted, abs=1e-12)
    pairs = scores[:, None] * (1 - scores)
    np.fill_diagonal(pairs, 0)
    assert best_auc(scores) == pytest.approx((pairs * above).sum() / pairs.sum(), abs=1e-12)


def test_a_core_makes_200_000_samples_a_second() -> None:
    stream = ClickStream(criteo_vocabularies())

    def rate() -> float:
        began = time.process_time()
        drawn(stream, 50_000)
        return 50_000 / (time.process_time() - began)

    assert undisturbed(rate, lambda got: got > 200_000) > 200_000


def test_vocabularies_are_criteos() -> None:
    assert sum(criteo_vocabularies().values()) == 33_762_577
    small = criteo_vocabularies(1e-4)
    assert list(small) == [f"C{n}" for n in range(1, 27)]
    assert min(small.values()) == 3 and max(small.values()) == 1013


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabularies": {}}, "at least one categorical feature"),
        ({"vocabularies": {"C1": 0}}, "C1 has 0 ids"),
        ({"vocabularies": {"C1": 2**31}}, "int32 holds them"),
        ({"numerical": -1}, "numerical is a number of counts, at least 0, got -1"),
        ({"exponent": -0.1}, "exponent is at least 0, got -0.1"),
        ({"reuse": 1.0}, "reuse is a share, from 0 to below 1, got 1.0"),
        ({"window": 0}, "window is a number of samples, at least 1, got 0"),
        ({"click_rate": 1.0}, "click_rate is between 0 and 1, got 1.0"),
        ({"spread": 0.0}, "spread is a standard deviation, above 0, got 0.0"),
    ],
)
def test_wrong_streams_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClickStream(**{"vocabularies": SMALL, **options})


def test_wrong_questions_are_explained() -> None:
    stream = ClickStream(SMALL)
    with pytest.raises(ValueError, match="there is no rank 2 of 2: they count from 0"):
        stream.dataset(100, 10, rank=2, size=2)
    with pytest.raises(ValueError, match="at least 1 sample, got batch_size=0"):
        stream.dataset(100, 0)
    with pytest.raises(ValueError, match="each of 2 ranks takes 200 samples.*got samples=100"):
        stream.dataset(100, 100, size=2)
    with pytest.raises(ValueError, match="there is no 'C9'; there are: C1, C2, C3"):
        stream.popularity("C9")
    with pytest.raises(ValueError, match="C2 has 3 ids: top is between 0 and that, got 4"):
        stream.hottest("C2", 4)
    with pytest.raises(ValueError, match="scale multiplies the vocabularies"):
        criteo_vocabularies(0)
    with pytest.raises(ValueError, match="there are 2 scores and 1 labels"):
        auc([1, 2], [1])
    with pytest.raises(ValueError, match="1 for a click and 0 for none"):
        auc([1, 2], [1, 2])
    with pytest.raises(ValueError, match="all labels are equal"):
        auc([1, 2], [1, 1])
    with pytest.raises(ValueError, match="probabilities are from 0 to 1"):
        best_auc([0.5, 1.5])
