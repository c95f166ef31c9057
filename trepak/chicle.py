"""Chicle: trainings with one task per rank, over chunks of samples that move between tasks.

For an application of one's own: a `Trainer`, a `Solver`, samples that are cut and placed, and
policies. `trepak.glm` is made of them.
"""

from trepak.tf_plugins.chicle.chunk import Chunk, Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.chunked_dataset import ChunkedDataset
from trepak.tf_plugins.chicle.cluster import cluster_of_job
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.horovod_rounds import train
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError, Move
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy, Share, Situation, TasksJoined, TasksLeaving
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.shuffling import Shuffling
from trepak.tf_plugins.chicle.sources import (
    Arrays,
    CsvFile,
    DatasetSamples,
    LibsvmFile,
    NpyFiles,
    Source,
)
from trepak.tf_plugins.chicle.straggler_mitigation import StragglerMitigation
from trepak.tf_plugins.chicle.trainer import (
    Iteration,
    IterationMetrics,
    Solver,
    TaskMetrics,
    Trainer,
)
from trepak.tf_plugins.chicle.training import Training

__all__ = [
    "Arrays",
    "Chunk",
    "ChunkStore",
    "ChunkedDataset",
    "CsvFile",
    "Cutting",
    "DatasetSamples",
    "ElasticScaling",
    "Field",
    "Iteration",
    "IterationMetrics",
    "Ledger",
    "LedgerError",
    "LibsvmFile",
    "Move",
    "NpyFiles",
    "Policy",
    "Rebalancing",
    "Share",
    "Shuffling",
    "Situation",
    "Solver",
    "Source",
    "StragglerMitigation",
    "TaskMetrics",
    "TasksJoined",
    "TasksLeaving",
    "Trainer",
    "Training",
    "cluster_of_job",
    "place",
    "train",
]
