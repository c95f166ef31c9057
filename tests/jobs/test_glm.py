"""Linear models over real ranks."""

from conftest import Shown, shows


@shows({"chicle-mpi-2": ["glm"], "chicle-gloo-3": ["glm"]})
def test_linear_models_of_all_ranks(shown: Shown) -> None:
    shown.check()
