// Finds the k elements of a gradient that are largest in magnitude: their indices and values, for compressors
// that send only these and keep the rest for later (error feedback). The methods are in
// kernels/selection.hpp; the search and its terms in kernels/bisection.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cpu/isa.hpp"
#include "kernels/selection.hpp"

namespace trainyard::kernels {

/// Selects, with memory that is kept from call to call and grows with the largest so far: 50 KB, 128 KB and
/// eight bytes for each candidate (Method::radix of large tensors; k and little more, two elements of eight at
/// most), four bytes for each element (Method::exact). Nothing else is allocated. Not to be used by two
/// threads at a time.
///
/// Results depend on the arguments alone, not on the instruction set. Among equal magnitudes the exact
/// methods take those of lowest index, so that their selections are the same.
class TopK {
 public:
  /// Throws std::invalid_argument where the processor has not these instructions.
  explicit TopK(Isa isa = fastest_isa());
  ~TopK();
  TopK(TopK&&) noexcept;
  TopK& operator=(TopK&&) noexcept;

  /// Selects exactly k = indices.size() elements of x, 0 <= k <= x.size() < 2^31: their indices, ascending,
  /// and their values, with their signs. `random`, any number of a counter-based stream, is where mstopk's
  /// stretch begins, the same for the same number; the other methods leave it alone. Throws
  /// std::invalid_argument for sizes and a `how` that are not as described.
  Selected select(std::span<const float> x, const Selection& how, std::uint64_t random,
                  std::span<std::int32_t> indices, std::span<float> values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// into[indices[j]] += values[j], in this order; an index may come more than once. Throws
/// std::invalid_argument, before anything is added, for an index that is not of `into`, and where there are
/// not as many values as indices.
void scatter_add(std::span<const float> values, std::span<const std::int32_t> indices, std::span<float> into);

/// in[indices[j]] = 0: what was sent is no residual. Throws as scatter_add.
void zero_at(std::span<const std::int32_t> indices, std::span<float> in);

}  // namespace trainyard::kernels
