"""trepak's Keras layers."""

from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_tiers import sample_labels

__all__ = ["DistributedEmbedding", "sample_labels"]
