// Which algorithm was chosen for which product, as bytes that another rank or a later start can take over. Pure data: knows
// nothing of CUDA, so that files and messages of it are tested without.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/objects.h"

namespace sysone {

// What a choice is made for.
struct ProductShape {
  int64_t out_cols = 0;
  int64_t rows = 0;  // kEveryRowCount where one algorithm serves all
  int64_t depth = 0;
  bool bias = false;
  auto operator<=>(const ProductShape&) const = default;
};
inline constexpr int64_t kEveryRowCount = 0;

struct ProductChoice {
  std::array<std::byte, 64> algorithm{};  // cublasLtMatmulAlgo_t, which says nothing to us
  bool tuned = false;                     // the fastest of several that were timed
  bool operator==(const ProductChoice&) const = default;
};

// One thread.
class MatMulChoices {
 public:
  // What all choices of one table have in common; others are of no use.
  struct Origin {
    uint64_t library_version = 0;
    Encoding encoding = Encoding::kBfloat16;
    bool batch_invariant = false;
    bool operator==(const Origin&) const = default;
  };

  explicit MatMulChoices(const Origin& origin) : origin_(origin) {}

  const Origin& origin() const { return origin_; }
  int64_t count() const { return std::ssize(choices_); }
  const ProductChoice* Find(const ProductShape& shape) const;
  void Set(const ProductShape& shape, const ProductChoice& choice) { choices_[shape] = choice; }
  const std::map<ProductShape, ProductChoice>& all() const { return choices_; }

  // Equal tables give equal bytes.
  std::vector<std::byte> Export() const;
  // kCorrupt: these are not the bytes of a table, or not all of them.
  static Result<MatMulChoices> Parse(std::span<const std::byte> bytes);

 private:
  Origin origin_;
  std::map<ProductShape, ProductChoice> choices_;
};

// Of candidates in the order of the heuristics, with the time of each (not finite: it could not be run): the first that takes
// at most 2 % more than the fastest, so that noise does not choose. -1 where none could be run.
int FastestCandidate(std::span<const float> times);

}  // namespace sysone
