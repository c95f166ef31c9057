"""trepak's Keras callbacks."""

from trepak.tf_plugins.callbacks.broadcast_callback import BroadcastGlobalVariablesCallback
from trepak.tf_plugins.callbacks.embedding_placement import EmbeddingPlacement
from trepak.tf_plugins.callbacks.fela_tuning import FelaTuning
from trepak.tf_plugins.callbacks.learning_rate_callbacks import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from trepak.tf_plugins.callbacks.memory_monitor import MemoryMonitor
from trepak.tf_plugins.callbacks.metric_callback import MetricAverageCallback
from trepak.tf_plugins.callbacks.straggler_monitor import StragglerMonitor
from trepak.tf_plugins.callbacks.timeline_callback import TimelineCallback
from trepak.tf_plugins.transport.geryon_threshold_tuning import PriorityThresholdTuning

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "EmbeddingPlacement",
    "FelaTuning",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MemoryMonitor",
    "MetricAverageCallback",
    "PriorityThresholdTuning",
    "StragglerMonitor",
    "TimelineCallback",
]
