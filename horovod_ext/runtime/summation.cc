#include "horovod_ext/runtime/summation.h"

namespace trepak {
namespace {

// What the network brings lies anywhere. The compiler makes vector instructions of these as well.
using AnyFloat = float __attribute__((aligned(1), may_alias));
using AnyDouble = double __attribute__((aligned(1), may_alias));

template <typename Element>
void AccumulateAs(size_t bytes, double factor, const void* addend, void* sum) {
  const auto* __restrict__ from = static_cast<const Element*>(addend);
  auto* __restrict__ to = static_cast<Element*>(sum);
  const size_t count = bytes / sizeof(Element);
  if (factor == 1.0) {
    for (size_t i = 0; i < count; ++i) {
      to[i] += from[i];
    }
    return;
  }
  const auto scale = static_cast<Element>(factor);
  for (size_t i = 0; i < count; ++i) {
    to[i] += scale * from[i];
  }
}

template <typename Element>
void ScaleAs(size_t bytes, double factor, const void* values, void* result) {
  const auto* from = static_cast<const Element*>(values);
  auto* to = static_cast<Element*>(result);
  const auto scale = static_cast<Element>(factor);
  const size_t count = bytes / sizeof(Element);
  for (size_t i = 0; i < count; ++i) {
    to[i] = scale * from[i];
  }
}

}  // namespace

void Accumulate(ElementType type, size_t bytes, double factor, const void* addend, void* sum) {
  if (type == ElementType::kFloat64) {
    AccumulateAs<AnyDouble>(bytes, factor, addend, sum);
  } else {
    AccumulateAs<AnyFloat>(bytes, factor, addend, sum);
  }
}

void Scale(ElementType type, size_t bytes, double factor, const void* values, void* result) {
  if (type == ElementType::kFloat64) {
    ScaleAs<AnyDouble>(bytes, factor, values, result);
  } else {
    ScaleAs<AnyFloat>(bytes, factor, values, result);
  }
}

}  // namespace trepak
