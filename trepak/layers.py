"""trepak's Keras layers."""

from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding

__all__ = ["DistributedEmbedding"]
