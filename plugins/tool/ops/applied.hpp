// Finds the options of a run file that hold the widths which advice is about, and writes them as a file to lay over it.
#pragma once

#include <string>
#include <vector>

#include <trainyard/value.hpp>

#include "advice.hpp"

namespace ops {

struct Applied {
  std::string text;                  ///< a run file of the options that change; empty: none does
  std::vector<std::string> changes;  ///< "model.hidden = [64, 32], which was [60, 30]"
  std::vector<std::string> without;  ///< advice that no option holds, and why
};

/// `widths` are all that the network has, in its order: an option belongs to a width where the model's options have that
/// number as often as widths do. Advice of other kinds than `kind` is left alone.
Applied apply(const trainyard::Table& config, const std::vector<Width>& widths,
              const std::vector<Advice>& advice, Advice::Kind kind);

}  // namespace ops
