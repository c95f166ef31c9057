"""What the thesis measured of RNA (section 5.6), to stand beside what `trepak bench rna` does."""

from __future__ import annotations

from trepak.scripts.bench import rna_probes
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA

# By case and method: gains over Horovod in time to the target loss (5.6.1, Figures 5.3 and 5.5).
GAINS = {
    ("resnet", RNA): 1.7,
    ("resnet", EAGER): 1.3,
    ("mixed", RNA): 1.5,
    ("mixed", EAGER): 1.1,
    ("mixed", GROUPED): 1.8,
    ("lstm", RNA): 1.6,
    ("transformer", RNA): 2.2,
    ("transformer", EAGER): 1.4,
    ("transformer", ADPSGD): 1.2,
    ("transformer uneven", RNA): 2.3,
    ("transformer uneven", ADPSGD): 1.6,
    ("vgg", RNA): 1.4,
    ("vgg mixed", GROUPED): 1.4,
}

# The same in time per iteration (Figures 5.5a and c).
GAINS_PER_STEP = {
    ("transformer", RNA): 2.6,
    ("transformer", EAGER): 1.9,
    ("transformer", ADPSGD): 1.4,
    ("transformer uneven", EAGER): 1.3,
}

# By case and method: training accuracy (Table 5.3), held-out top-1 accuracy and thousands of
# iterations (Table 5.4; nothing for mixed ranks, where RNA has groups).
ACCURACIES: dict[tuple[str, str], tuple[float, float | None, float | None]] = {
    ("accuracy", HOROVOD): (0.78, 0.762, 42.2),
    ("accuracy", EAGER): (0.762, 0.748, 49.8),
    ("accuracy", ADPSGD): (0.708, 0.688, 38.8),
    ("accuracy", RNA): (0.782, 0.759, 52.4),
    ("accuracy vgg", HOROVOD): (0.934, 0.925, 1.08),
    ("accuracy vgg", EAGER): (0.928, 0.918, 1.36),
    ("accuracy vgg", ADPSGD): (0.868, 0.828, 0.88),
    ("accuracy vgg", RNA): (0.926, 0.922, 1.42),
    ("accuracy lstm", HOROVOD): (0.882, 0.682, 8.12),
    ("accuracy lstm", EAGER): (0.875, 0.668, 9.6),
    ("accuracy lstm", ADPSGD): (0.788, 0.606, 7.8),
    ("accuracy lstm", RNA): (0.878, 0.665, 9.66),
    ("accuracy mixed", HOROVOD): (0.79, None, None),
    ("accuracy mixed", EAGER): (0.758, None, None),
    ("accuracy mixed", ADPSGD): (0.68, None, None),
    ("accuracy mixed", GROUPED): (0.778, None, None),
    ("accuracy vgg mixed", HOROVOD): (0.932, None, None),
    ("accuracy vgg mixed", EAGER): (0.922, None, None),
    ("accuracy vgg mixed", ADPSGD): (0.876, None, None),
    ("accuracy vgg mixed", GROUPED): (0.924, None, None),
}

# By case: share of an iteration in which RNA copies between GPU and CPU (Table 5.5).
COPY_SHARES = {"resnet": 0.062, "lstm": 0.038, "vgg": 0.23, "transformer": 0.18}

CLAIMS = {
    "rna.time_to_loss_vs_horovod": 1.7,
    "rna.time_to_loss_lstm_vs_horovod": 1.6,
    "rna.time_to_loss_transformer_vs_horovod": 2.2,
    "rna.time_to_loss_vgg_vs_horovod": 1.4,
    "rna.time_to_loss_vs_eager_sgd": 1.3,  # 1.7 / 1.3
    "rna.time_to_loss_vs_adpsgd_at_equal_accuracy": 1.3,
    "rna_hierarchical.time_to_loss_mixed_vs_horovod": 1.8,
    "rna.accuracy_gap": 0.3,  # Table 5.4
    "rna.accuracy_gap.vgg": 0.3,
    "rna.accuracy_gap.lstm": 1.7,
    "rna.copy_share": 0.062,
    "rna.probe_speedup": rna_probes.THESIS,
}
