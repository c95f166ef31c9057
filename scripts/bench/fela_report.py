"""What `trepak bench fela` reports and claims of its cases in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench import fela_scale
from trepak.scripts.bench.fela_baselines import WAYS
from trepak.scripts.bench.fela_cases import best_of
from trepak.scripts.bench.fela_models import MEMORY, NETWORKS, Layer
from trepak.scripts.bench.fela_trials import FELA, Found, Straggled
from trepak.scripts.report import Claims, Report

# Kinds of rows.
SATURATION = "a layer's throughput by batch, of its greatest (Figure 1)"
THRESHOLDS = "threshold batch sizes by layer (Figure 5)"
TUNING = "cases of the tuning (Figure 6a)"
GAPS = "the best case's time less than the worst's (Figure 6b), and the policies (Figure 7)"
PLAIN = "samples a second without stragglers (Figure 8)"
BOUNDS = "Fela's seconds and bounds without stragglers"
STRAGGLERS = "samples a second with stragglers (Figures 9, 10)"
DELAYS = "seconds of delay by iteration, with stragglers (Figures 9, 10)"

Rows = list[dict[str, Any]]

# What the text prints; of a range the ends (sections V-B, V-C, Table III).
SPEEDUPS = {
    "vgg19": {"DP": (1.0998, 3.23), "MP": (5.18, 8.12), "HP": (1.1577, 1.4965)},
    "googlenet": {"DP": (1.1325, 2.15), "MP": (3.63, 12.22), "HP": (1.1901, 1.85)},
}
STRAGGLED = {  # throughput over DP's, and how much less PID is
    ("vgg19", "round-robin"): ((1.286, 1.60), (0.3035, 0.6819)),
    ("googlenet", "round-robin"): ((1.0727, 1.3287), (0.3035, 0.6819)),
    ("vgg19", "probability"): ((1.1958, 1.3391), (0.2323, 0.5136)),
    ("googlenet", "probability"): ((1.2294, 1.4373), (0.2762, 0.4622)),
}
POLICIES = {
    "HF": (1.448, 1.963),
    "ADS": (1.0164, 1.0821),
    "CTD": (1.056, 1.70),
    "tuning": (1.093, 2.07),
}
_LEAST_REDUCTION = {
    ("vgg19", "round-robin"): 0.30,
    ("googlenet", "round-robin"): 0.30,
    ("vgg19", "probability"): 0.23,
    ("googlenet", "probability"): 0.27,
}
_LEAST_OF_BOUND = 0.85
_LEAST_SPEEDUP, _NO_LESS = 1.05, 0.97
_POSSIBLE = 1.10  # of the bound: where the baseline takes so much longer, Fela should be faster
_BADLY_SET = 0.9  # of its bound
_FIGURE_1 = {
    "CONV (64,64,224,224)": ("vgg19", 1),
    "CONV (512,512,14,14)": ("vgg19", 15),
    "FC (4096,4096)": ("vgg19", 17),
}


def summarize(found: Sequence[Found], scale: Rows, environment: Mapping[str, Any]) -> Report:
    """Returns the report of all cases, and of the token server with many workers."""
    rows: Rows = [*_saturation(), *_thresholds()]
    for of_one in (_tuning, _gaps, _plain, _bounds, _stragglers, _delays):
        rows += [row for one in found for row in of_one(one)]
    claims = Claims()
    for one in found:
        _claim_plain(claims, one)
    for network in dict.fromkeys(one.network for one in found):
        mine = [one for one in found if one.network == network]
        _claim_most(claims, network, mine)
        _claim_stragglers(claims, network, mine)
    _claim_policies(claims, found)
    rows += scale
    fela_scale.claim(claims, scale)
    return Report("fela", claims, rows, environment, unprinted=(SATURATION, THRESHOLDS, TUNING))


def _about(found: Found) -> dict[str, Any]:
    return {"network": found.network, "total": found.total}


def _saturation() -> Rows:
    rows = []
    for name, (network, place) in _FIGURE_1.items():
        layer: Layer = NETWORKS[network].layers[place]
        greatest = 1 / (layer.seconds(2) - layer.seconds(1))
        shares = [
            [batch, batch / layer.seconds(batch) / greatest]
            for batch in (1 << i for i in range(13))
        ]
        about = {"kind": SATURATION, "layer": name, "threshold": layer.threshold}
        rows.append({**about, "by_batch": shares})
    return rows


def _thresholds() -> Rows:
    return [
        {
            "kind": THRESHOLDS,
            "network": name,
            "sub_model": number,
            "thresholds": [layer.threshold for layer in part.layers],
        }
        for name, network in NETWORKS.items()
        for number, part in enumerate(network.sub_models, 1)
    ]


def _tuning(found: Found) -> Rows:
    return [
        {
            "kind": TUNING,
            **_about(found),
            "case": number,
            "phase": one.phase,
            "weights": list(one.setting.weights),
            "subset": one.setting.subset,
            "seconds": one.outcome.seconds,
            "of_bound": one.bounds.largest / one.outcome.seconds,
            "memory_gb": one.outcome.most_memory / 1e9,
            "fits": one.fits,
        }
        for number, one in enumerate(found.tried)
    ]


def gaps(found: Found) -> dict[str, float]:
    """Returns how much longer the worst case takes than the best one, by phase; see Figure 6(b).

    Phase 2's cases are three, and phase 1's best one. Cases that there is no room for don't count.
    """
    fits = [one for one in found.tried if one.fits]
    first = [one.outcome.seconds for one in fits if one.phase == 1]
    second = [min(first), *(one.outcome.seconds for one in fits if one.phase == 2)]
    paper = [*first, *second]
    return {
        "tuning": max(first) / min(first),
        "CTD": max(second) / min(second),
        "both": max(paper) / min(paper),
    }


def _gaps(found: Found) -> Rows:
    ratios = gaps(found)
    without = {
        f"without_{policy}": one.seconds / found.fela.outcome.seconds
        for policy, one in found.without.items()
    }
    return [
        {
            "kind": GAPS,
            **_about(found),
            "phase_1": 1 - 1 / ratios["tuning"],
            "phase_2": 1 - 1 / ratios["CTD"],
            "both": 1 - 1 / ratios["both"],
            "refused": sum(not one.fits for one in found.tried),
            **without,
            "memory_without_ADS_gb": found.without["ADS"].most_memory / 1e9,
        }
    ]


def _plain(found: Found) -> Rows:
    row: dict[str, Any] = {"kind": PLAIN, **_about(found)}
    for way, seconds in found.seconds.items():
        row[way] = found.total / seconds
    for way, one in found.baselines.items():
        share = one.bound / one.seconds
        row[f"{way}_of_bound"] = share
        row[f"{way}_set"] = one.settings + (" (badly set)" if share < _BADLY_SET else "")
    return [row]


def _bounds(found: Found) -> Rows:
    one, paper = found.fela, best_of(found.tried, phases=2)
    return [
        {
            "kind": BOUNDS,
            **_about(found),
            "weights": " ".join(map(str, one.setting.weights)),
            "subset": one.setting.subset,
            "seconds": one.outcome.seconds,
            **one.bounds._asdict(),
            "of_bound": one.bounds.largest / one.outcome.seconds,
            "binding": one.bounds.binding,
            "memory_gb": one.outcome.most_memory / 1e9,
            "of_memory": one.outcome.most_memory / MEMORY,
            "two_phases_weights": " ".join(map(str, paper.setting.weights)),
            "two_phases_subset": paper.setting.subset,
            "two_phases_seconds": paper.outcome.seconds,
        }
    ]


def _about_scenario(found: Found, one: Straggled) -> dict[str, Any]:
    about = {"case": f"{found.network} {found.total}", "stragglers": one.scenario.kind}
    return {**about, "value": one.scenario.value}


def _stragglers(found: Found) -> Rows:
    return [
        {
            "kind": STRAGGLERS,
            **_about_scenario(found, one),
            **{way: found.total / seconds for way, seconds in one.seconds.items()},
            "vs_DP": one.seconds["DP"] / one.seconds[FELA],
            "of_bound": one.bound / one.seconds[FELA],
        }
        for one in found.straggled
    ]


def _delays(found: Found) -> Rows:
    return [
        {
            "kind": DELAYS,
            **_about_scenario(found, one),
            **{way: one.seconds[way] - seconds for way, seconds in found.seconds.items()},
            "reduction": reduction(found, one.seconds[FELA], one),
            "possible": reduction(found, one.bound, one),
            "holding": reduction(found, one.holds, one),
            "possible_holding": reduction(found, one.holds_bound, one),
            "weights": " ".join(map(str, one.setting.weights)),
            "subset": one.setting.subset,
            "of_memory": one.memory / MEMORY,
        }
        for one in found.straggled
    ]


def reduction(found: Found, seconds: float, one: Straggled) -> float:
    """Returns 1 − PID / PID of DP, where an iteration takes so long with the stragglers."""
    return 1 - (seconds - found.seconds[FELA]) / (one.seconds["DP"] - found.seconds["DP"])


def _claim_plain(claims: Claims, found: Found) -> None:
    one, name = found.fela, f"{found.network}.{found.total}"
    share = one.bounds.largest / one.outcome.seconds
    claims.add(f"fela.fraction_of_bound.{name}", share, _LEAST_OF_BOUND, unit="", emulated=False)
    for way in WAYS:
        seconds = found.seconds[way]
        could = seconds >= _POSSIBLE * one.bounds.largest
        target = _LEAST_SPEEDUP if could else _NO_LESS
        full = f"fela.speedup_vs_{way.lower()}.{name}"
        claims.add(full, seconds / one.outcome.seconds, target, emulated=False)


def _claim_most(claims: Claims, network: str, found: Sequence[Found]) -> None:
    for way in WAYS:
        most = max(one.seconds[way] / one.seconds[FELA] for one in found)
        paper = SPEEDUPS[network][way][1]
        full = f"fela.most_speedup_vs_{way.lower()}.{network}"
        claims.add(full, most, None, paper=paper, emulated=False)


def _claim_stragglers(claims: Claims, network: str, found: Sequence[Found]) -> None:
    for kind in ("round-robin", "probability"):
        cases = [(of, one) for of in found for one in of.straggled if one.scenario.kind == kind]
        if not cases:
            continue
        (least, _), (paper, _) = STRAGGLED[network, kind]
        target = _LEAST_REDUCTION[network, kind]
        name = f"{kind.replace('-', '_')}.{network}"
        possible = [
            reduction(of, one.seconds[FELA], one)
            for of, one in cases
            if reduction(of, one.bound, one) >= target
        ]
        full = f"fela.delay_reduction.{name}"
        value = min(possible, default=None)
        claims.add(full, value, target, unit="", paper=paper, emulated=False)
        over = min(one.seconds["DP"] / one.seconds[FELA] for _, one in cases)
        claims.add(f"fela.throughput_vs_dp.{name}", over, None, paper=least, emulated=False)


def _claim_policies(claims: Claims, found: Sequence[Found]) -> None:
    """Of VGG-19, as the paper's; the least and the most over total batches."""
    vgg = [one for one in found if one.network == "vgg19"]
    for policy, ends in POLICIES.items():
        if policy in ("HF", "ADS"):
            ratios = [one.without[policy].seconds / one.seconds[FELA] for one in vgg]
        else:
            ratios = [gaps(one)[policy] for one in vgg]
        for end, pick, paper in zip(("least", "most"), (min, max), ends, strict=True):
            full = f"fela.gain_by_{policy.lower()}.{end}"
            claims.add(full, pick(ratios, default=None), None, paper=paper, emulated=False)
