"""Linear models with scikit-learn's interface, which all ranks of a job fit together.

The modules are loaded with the first of these names.
"""

from trepak.tf_plugins.chicle.glm_classifiers import LinearSVC, LogisticRegression
from trepak.tf_plugins.chicle.glm_ridge import Ridge

__all__ = ["LinearSVC", "LogisticRegression", "Ridge"]
