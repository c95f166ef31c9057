// Functions that Python calls by name, at once: what stands in no graph needs no op of its own.

#ifndef TREPAK_OPS_CALLS_H_
#define TREPAK_OPS_CALLS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/platform/errors.h"

// JSON has no infinities and nothing that is not a number: {"number": "NaN"} stands for it, on both
// sides (loader.py).
template <typename Float>
struct nlohmann::adl_serializer<Float, std::enable_if_t<std::is_floating_point_v<Float>>> {
  static void to_json(json& made, Float value) {
    if (std::isfinite(value)) {
      nlohmann::to_json(made, value);
    } else {
      made = {{"number", std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity"}};
    }
  }
  static void from_json(const json& given, Float& value) {
    if (given.is_object()) {
      value =
          static_cast<Float>(std::strtod(given.at("number").get<std::string>().c_str(), nullptr));
    } else {
      nlohmann::from_json(given, value);
    }
  }
};

namespace trepak {

using Json = nlohmann::json;

// What a function is given, by name. Throws errors that name the argument.
class Arguments {
 public:
  explicit Arguments(Json values) : values_(std::move(values)) {}

  // It must be there, and of that type.
  template <typename Value>
  Value Get(const std::string& name) const {
    try {
      const Json& value = values_.at(name);
      if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
        CheckWhole<Value>(value);
      }
      return value.get<Value>();
    } catch (const std::exception& error) {
      throw std::invalid_argument(name + ": " + error.what());
    }
  }

  // The same of what may be left out.
  template <typename Value>
  Value GetOr(const std::string& name, Value otherwise) const {
    return values_.contains(name) ? Get<Value>(name) : otherwise;
  }

  // The same of a whole number, which must not be smaller.
  int64_t AtLeast(int64_t least, const std::string& name) const {
    const auto value = Get<int64_t>(name);
    if (value < least) {
      throw std::invalid_argument(name + ": must be at least " + std::to_string(least) + ", is " +
                                  std::to_string(value));
    }
    return value;
  }

 private:
  // Else a fraction would be cut, and a number out of range be another one.
  template <typename Value>
  static void CheckWhole(const Json& given) {
    const bool fits =
        given.is_number_unsigned()
            ? given.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<Value>::max())
            : given.is_number_integer() && std::is_signed_v<Value> &&
                  given.get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<Value>::min());
    if (!fits) {
      throw std::invalid_argument("must be a whole number in range");
    }
  }

  const Json values_;
};

// An argument: a list of rows of one length.
struct Matrix {
  std::vector<double> values;
  size_t rows = 0;
  size_t columns = 0;
};

inline void from_json(const Json& given, Matrix& matrix) {
  for (const Json& row : given) {
    matrix.columns = matrix.rows++ == 0 ? row.size() : matrix.columns;
    if (!row.is_array() || row.size() != matrix.columns) {
      throw std::invalid_argument("must be a matrix");
    }
    const auto values = row.get<std::vector<double>>();
    matrix.values.insert(matrix.values.end(), values.begin(), values.end());
  }
}

// An argument: a NumPy array of the caller's, used where it lies, while the call runs; `in_place`
// of loader.py. Of const elements it may be one that is not writable.
template <typename Element>
struct ArrayInPlace {
  Element* data = nullptr;
  size_t size = 0;
};

template <typename Element>
void from_json(const Json& given, ArrayInPlace<Element>& array) {
  using Plain = std::remove_const_t<Element>;
  static_assert(std::is_same_v<Plain, double> || std::is_same_v<Plain, int64_t>);
  const std::string dtype = std::is_same_v<Plain, double> ? "float64" : "int64";
  if (given.at("dtype").get<std::string>() != dtype) {
    throw std::invalid_argument("must be an array of " + dtype);
  }
  if (!std::is_const_v<Element> && !given.at("is_writable").get<bool>()) {
    throw std::invalid_argument("must be a writable array");
  }
  array.data = reinterpret_cast<Element*>(given.at("address").get<uintptr_t>());
  array.size = given.at("size").get<size_t>();
}

// Runs what reads JSON, whose exceptions end here. `what`: is wrong if it throws.
template <typename Read>
absl::Status WithoutThrowing(const std::string& what, const Read& read) {
  try {
    return read();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError("trepak: " + what + ": " + error.what());
  }
}

// May block: Python's other threads go on meanwhile. Called from any thread.
using Function = std::function<absl::Status(const Arguments& given, Json* result)>;

// Makes functions known under the names by which `call` in loader.py calls them; at start-up.
bool RegisterCalls(const std::map<std::string, Function>& functions);

}  // namespace trepak

#endif  // TREPAK_OPS_CALLS_H_
