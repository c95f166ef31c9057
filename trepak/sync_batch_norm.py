"""The name of `horovod.tensorflow.sync_batch_norm`, which `trepak` has."""

from trepak.tf_plugins.model.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
