// Adds up gradients.

#ifndef TREPAK_OPS_RUNTIME_PARAMETERS_SUMMATION_H_
#define TREPAK_OPS_RUNTIME_PARAMETERS_SUMMATION_H_

#include <cstddef>

#include "ops/runtime/net/message.h"

namespace trepak {

// sum[i] += factor * addend[i] for `bytes` / SizeOf(type) elements. Neither needs to be aligned;
// they must not overlap. Thread safety: one thread per sum.
void Accumulate(ElementType type, size_t bytes, double factor, const void* addend, void* sum);

// result[i] = factor * values[i], in the same way; may be the same memory.
void Scale(ElementType type, size_t bytes, double factor, const void* values, void* result);

// Copies numbers; returns whether all are finite. In the same way, but they must be aligned.
bool CopyFinite(ElementType type, size_t bytes, const void* values, void* copy);

// Whether all numbers are finite; they must be aligned.
bool AllFinite(ElementType type, size_t bytes, const void* values);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_PARAMETERS_SUMMATION_H_
