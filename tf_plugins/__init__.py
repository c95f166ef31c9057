"""What plugs into TensorFlow and Keras: optimizer and tape wrappers, callbacks, elastic state."""

import trepak.horovod_ext  # noqa: F401  (imports TensorFlow and Horovod quietly, and checks them)
