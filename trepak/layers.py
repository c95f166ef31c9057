"""trepak's Keras layers, and checkpoints of their embedding tables."""

from trepak.tf_plugins.layers.converted_embeddings import distribute_embeddings
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_checkpoint import load_tables, save_tables
from trepak.tf_plugins.layers.embedding_tiers import sample_labels
from trepak.tf_plugins.layers.table_export import export_tables

__all__ = [
    "DistributedEmbedding",
    "distribute_embeddings",
    "export_tables",
    "load_tables",
    "sample_labels",
    "save_tables",
]
