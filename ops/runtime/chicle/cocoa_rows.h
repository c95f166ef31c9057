// Arithmetic with one sample's features, dense or sparse, in float64.

#ifndef TREPAK_OPS_RUNTIME_CHICLE_COCOA_ROWS_H_
#define TREPAK_OPS_RUNTIME_CHICLE_COCOA_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace trepak {
namespace cocoa {

// x·v; `columns` is null of a dense row. Four sums, so that additions need not wait for each other.
template <typename Value>
double Dot(const Value* x, const int32_t* columns, size_t count, const double* v) {
  double sums[4] = {};
  size_t i = 0;
  const auto at = [columns, v](size_t k) { return columns == nullptr ? v[k] : v[columns[k]]; };
  if (columns == nullptr) {
    for (; i + 4 <= count; i += 4) {
      for (size_t k = 0; k < 4; ++k) {
        sums[k] += static_cast<double>(x[i + k]) * v[i + k];
      }
    }
  } else {
    for (; i + 4 <= count; i += 4) {
      for (size_t k = 0; k < 4; ++k) {
        sums[k] += static_cast<double>(x[i + k]) * v[columns[i + k]];
      }
    }
  }
  for (; i < count; ++i) {
    sums[0] += static_cast<double>(x[i]) * at(i);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// ‖x‖².
template <typename Value>
double Norm(const Value* x, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

// v += factor·x.
template <typename Value>
void AddTimes(double factor, const Value* x, const int32_t* columns, size_t count, double* v) {
  if (columns == nullptr) {
    for (size_t i = 0; i < count; ++i) {
      v[i] += factor * static_cast<double>(x[i]);
    }
  } else {
    for (size_t i = 0; i < count; ++i) {
      v[columns[i]] += factor * static_cast<double>(x[i]);
    }
  }
}

}  // namespace cocoa
}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_CHICLE_COCOA_ROWS_H_
