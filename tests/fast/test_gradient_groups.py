"""Which gradients travel together."""

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from trepak.horovod_ext.gradient_groups import BUCKET_BYTES, buckets, grouped


def gradients(sizes):
    return [tf.TensorSpec([size]) for size in sizes]


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(1, 8000))
def test_buckets_hold_each_gradient_once_and_the_last_first(sizes, limit):
    made = buckets(gradients(sizes), limit)
    assert sorted(place for bucket in made for place in bucket) == list(range(len(sizes)))
    for bucket in made:
        assert bucket == sorted(bucket, reverse=True)
        alone = [place for place in bucket if 4 * sizes[place] >= limit]
        assert not alone or len(bucket) == 1
    # Each is complete later than the one before: its earliest variable stands before that one's.
    ends = [bucket[-1] for bucket in made if 4 * sizes[bucket[0]] < limit]
    assert ends == sorted(ends, reverse=True)


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(1, 8000))
def test_small_gradients_fill_their_buckets(sizes, limit):
    small = [b for b in buckets(gradients(sizes), limit) if 4 * sizes[b[0]] < limit]
    bytes_ = [sum(4 * sizes[place] for place in bucket) for bucket in small]
    assert all(limit <= size < 2 * limit for size in bytes_[:-1])
    assert all(size < 2 * limit for size in bytes_)


def test_buckets_are_the_default_and_of_one_dtype_each():
    variables = [
        tf.TensorSpec([10]),
        tf.TensorSpec([BUCKET_BYTES]),  # large: alone
        tf.TensorSpec([10], tf.float64),
        tf.TensorSpec([None]),  # of a size that is not known: small
        tf.TensorSpec([5]),
    ]
    dtypes = [variable.dtype for variable in variables]
    assert list(grouped(None, variables, dtypes)) == [[1], [4, 3, 0], [2]]
    assert list(grouped(1, variables, dtypes)) == [[0, 1, 3, 4], [2]]
    assert list(grouped(2, variables, dtypes)) == [[0, 1], [2], [3, 4]]
    assert list(grouped(99, variables, dtypes)) == [[0], [1], [2], [3], [4]]


def test_variables_that_no_list_names_travel_alone():
    variables = [tf.Variable(tf.zeros([3])) for _ in range(4)]
    dtypes = [tf.float32] * 4
    groups = [[variables[3], variables[0]]]
    assert list(grouped(groups, variables, dtypes)) == [[3, 0], [1], [2]]
