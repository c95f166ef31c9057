"""What the paper of ElasticBSP measured (section V), to stand beside what its benches do."""

from __future__ import annotations

from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP, elastic_bsp

# Computation times in microseconds (Table II), by algorithm: 10, 100 and 1000 workers, each with 15
# and with 150 iterations ahead.
SEARCH_MICROSECONDS = {
    "zipline": (1.49e2, 1.32e3, 6.37e3, 4.99e4, 2.53e5, 2.38e6),
    "full_grid_scan": (1.54e3, 4.67e4, 8.13e4, 2.15e6, 4.04e6, 2.07e8),
    "grid_scan": (1.68e2, 5.50e3, 1.11e3, 4.38e4, 7.45e3, 2.57e5),
}

# In which order the methods end a fixed number of epochs, by case (section V-B); the paper gives no
# times, and of ElasticBSP's lookaheads with AlexNet only these two.
FINISHING_ORDERS = {
    "alexnet": (SSP, ASP, elastic_bsp(15), elastic_bsp(30), HOROVOD),
    "resnet": (elastic_bsp(15), HOROVOD, SSP, ASP),
}
