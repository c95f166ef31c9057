"""trepak's Keras callbacks."""

from trepak.tf_plugins.broadcast_callback import BroadcastGlobalVariablesCallback
from trepak.tf_plugins.learning_rate_callbacks import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from trepak.tf_plugins.metric_callback import MetricAverageCallback
from trepak.tf_plugins.priority_threshold_tuning import PriorityThresholdTuning
from trepak.tf_plugins.straggler_monitor import StragglerMonitor
from trepak.tf_plugins.timeline_callback import TimelineCallback

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "PriorityThresholdTuning",
    "StragglerMonitor",
    "TimelineCallback",
]
