#include "ops/runtime/dymem/pool_map.h"

#include <algorithm>
#include <cstdio>

namespace trepak {
namespace {

using Blocks = std::vector<Placement::Block>;

// So many of each are named.
constexpr size_t kNamed = 4;

const char* NameOf(const Placement::Block& block) {
  static const char* const kNames[] = {"movable", "temporary", "reclaimed"};
  return block.is_live ? kNames[static_cast<int>(block.mobility)] : "free";
}

size_t BytesOf(const Blocks& blocks) {
  size_t bytes = 0;
  for (const Placement::Block& block : blocks) {
    bytes += block.bytes;
  }
  return bytes;
}

std::string Sum(const char* what, const Blocks& blocks) {
  return std::string(what) + " " + DescribeBytes(BytesOf(blocks)) + " in " +
         std::to_string(blocks.size());
}

// The largest first; of equal ones those with the lower offset.
std::string Largest(const char* title, const Blocks& blocks) {
  if (blocks.empty()) {
    return "";
  }
  std::string line = std::string("\n  ") + title + ": ";
  for (size_t i = 0; i < std::min(kNamed, blocks.size()); ++i) {
    const Placement::Block& block = blocks[i];
    line += (i == 0 ? "" : ", ") + DescribeBytes(block.bytes) + " " + NameOf(block) + " at " +
            std::to_string(block.offset);
  }
  return line;
}

}  // namespace

std::string DescribeBytes(size_t bytes) {
  static const char* const kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(kUnits)) {
    size /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f %s", unit == 0 ? 0 : 1, size, kUnits[unit]);
  return text;
}

std::string DescribePool(const PoolFigures& figures, Blocks blocks) {
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  Blocks live, gaps, of_class[3];
  for (const Placement::Block& block : blocks) {
    (block.is_live ? live : gaps).push_back(block);
    if (block.is_live) {
      of_class[static_cast<int>(block.mobility)].push_back(block);
    }
  }
  return "The pool of " + DescribeBytes(figures.limit) + " holds " + Sum("tensors of", live) +
         " blocks (" + Sum("movable", of_class[0]) + ", " + Sum("temporary", of_class[1]) + ", " +
         Sum("reclaimed", of_class[2]) + ") and " + DescribeBytes(figures.small) +
         " of small ones." + "\n  " + Sum("gaps:", gaps) +
         "; kept back (beta): " + DescribeBytes(figures.beta) +
         "; scratch outside: " + DescribeBytes(figures.outside) + Largest("largest blocks", live) +
         Largest("largest gaps", gaps);
}

}  // namespace trepak
