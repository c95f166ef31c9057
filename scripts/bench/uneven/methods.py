"""The methods of a comparison: names, and the sync model that each stands for."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench.uneven.cases import Case

HOROVOD = "horovod"  # ranks wait for each other in every step
RNA, GROUPED, EAGER, ADPSGD = "rna", "rna groups", "eager-sgd", "ad-psgd"
SSP, ASP = "ssp", "asp"


def elastic_bsp(lookahead: int) -> str:
    """Returns the name of ElasticBSP with a lookahead."""
    return f"elastic-bsp {lookahead}"


def plans_barriers(method: str) -> bool:
    """Returns whether a method is ElasticBSP, whose scheduler records the times of steps."""
    return method.startswith("elastic-bsp ")


def sync_of(method: str, case: Case, seed: int) -> Any:
    """Returns how ranks synchronize.

    Args:
        method: its name.
        case: whose groups it may need.
        seed: of what is drawn.

    Raises:
        KeyError: there is no method of that name.
    """
    import trepak

    if plans_barriers(method):
        return trepak.ElasticBSP(lookahead=int(method.split()[1]))
    return {
        HOROVOD: lambda: trepak.BSP(),
        RNA: lambda: trepak.RNA(seed=seed),
        GROUPED: lambda: trepak.RNA(seed=seed, groups=case.groups),
        EAGER: lambda: trepak.EagerSGD("majority", seed=seed),
        ADPSGD: lambda: trepak.ADPSGD(seed=seed),
        SSP: lambda: trepak.SSP(),
        ASP: lambda: trepak.ASP(),
    }[method]()
