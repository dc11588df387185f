// Scaled dot-product attention as an instruction: heads that lie beside each other in the rows of their values.
#pragma once

#include <array>
#include <cstdint>

#include "compiler.hpp"
#include "kernels/cpu/attention.hpp"

namespace compiled {

struct Heads {
  std::int64_t samples, count;
  trainyard::kernels::AttentionShape shape;  ///< of each

  /// Elements from a row of the output to the next.
  std::int64_t row() const { return count * shape.width; }
};

/// Rows that a value holds, perhaps beside others: of packed queries, keys and values.
struct Rows {
  ValueNumber value;
  std::int64_t first, stride;
};

/// What the way back reads and writes, in whatever type the values have.
struct AttentionGradients {
  dnnl::memory given, output;                ///< the gradient of the output, and the output
  std::array<dnnl::memory, 3> inputs, into;  ///< packed inputs share a gradient
  std::array<Contribution, 3> contributions;

  void plan(Compiler& compiler, const std::array<Rows, 3>& rows, ValueNumber y) {
    given = *compiler.gradient(y);
    output = compiler.memory(y);
    const bool packed = rows[0].value == rows[1].value;
    for (std::size_t i = 0; i < 3; ++i) {
      inputs[i] = compiler.memory(rows[i].value);
      contributions[i] = packed && i > 0 ? contributions[0] : compiler.contribute(rows[i].value);
      into[i] = contributions[i].memory;
    }
    if (packed) contributions[1].then = contributions[2].then = Contribution::Finish::nothing;
  }
  void finish() const {
    for (const Contribution& each : contributions) each.finish();
  }
};

/// Of values of bfloat16; y is one. The products are oneDNN's.
void attend_in_halves(Compiler& compiler, const Heads& heads, const std::array<Rows, 3>& inputs,
                      ValueNumber y);

}  // namespace compiled
