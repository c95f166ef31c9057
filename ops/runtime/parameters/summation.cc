#include "ops/runtime/parameters/summation.h"

#include <cstdint>
#include <limits>

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

// The bits of the exponent, which are all set where a number is not finite: the compiler makes
// vector instructions of that, and none of std::isfinite.
template <typename Element, typename Bits>
constexpr Bits Exponent() {
  constexpr int kMantissa = std::numeric_limits<Element>::digits - 1;
  return ((Bits{1} << (8 * sizeof(Bits) - 1)) - 1) >> kMantissa << kMantissa;
}

template <typename Element, typename Bits>
bool CopyFiniteOf(size_t count, const void* values, void* copy) {
  const auto* from = static_cast<const Bits*>(values);
  auto* to = static_cast<Bits*>(copy);
  constexpr Bits kExponent = Exponent<Element, Bits>();
  Bits wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    to[i] = from[i];
    wrong |= (from[i] & kExponent) == kExponent ? 1 : 0;
  }
  return wrong == 0;
}

template <typename Element, typename Bits>
bool AllFiniteOf(size_t count, const void* values) {
  const auto* from = static_cast<const Bits*>(values);
  constexpr Bits kExponent = Exponent<Element, Bits>();
  Bits wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong |= (from[i] & kExponent) == kExponent ? 1 : 0;
  }
  return wrong == 0;
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

bool CopyFinite(ElementType type, size_t bytes, const void* values, void* copy) {
  return type == ElementType::kFloat64
             ? CopyFiniteOf<double, uint64_t>(bytes / sizeof(double), values, copy)
             : CopyFiniteOf<float, uint32_t>(bytes / sizeof(float), values, copy);
}

bool AllFinite(ElementType type, size_t bytes, const void* values) {
  return type == ElementType::kFloat64
             ? AllFiniteOf<double, uint64_t>(bytes / sizeof(double), values)
             : AllFiniteOf<float, uint32_t>(bytes / sizeof(float), values);
}

}  // namespace trepak
