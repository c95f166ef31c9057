"""The long run of the fuzzers in parameters/wire_fuzz_test.cc, which CI runs shortly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "native-address"


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["EndpointsSurviveAnyMessage", "TransportSurvivesAnyStranger"])
def test_a_million_inputs(name: str) -> None:
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-DTREPAK_SANITIZE=address,undefined"]
    subprocess.run(configure, check=True, capture_output=True)
    build = ["cmake", "--build", str(BUILD), "--target", "wire_fuzz_test"]
    subprocess.run(build, check=True, capture_output=True)
    done = subprocess.run(
        [str(BUILD / "ops/runtime/wire_fuzz_test"), f"--gtest_filter=*{name}"],
        env={**os.environ, "FUZZ_INPUTS": "1000000"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(done.stdout)
