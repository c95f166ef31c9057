"""What every sync model promises, on both launchers; systems and cases: tests/workers/contract.py.

A new system adds its line to SYSTEMS there.
"""

from __future__ import annotations

import re

from conftest import WORKERS, Shown, count_cases, shows


@shows({"pace-mpi-2": ["contract"], "pace-gloo-3": ["contract"]})
def test_every_sync_model_keeps_the_contract(shown: Shown) -> None:
    source = (WORKERS / "contract.py").read_text()
    systems = re.findall(r'^    "\w+": System\(', source, re.MULTILINE)
    promises = re.findall(r"^@promise$", source, re.MULTILINE)
    assert len(systems) >= 7 and len(promises) >= 5
    shown.check(len(systems) * len(promises) + count_cases("contract"))
