// Sections of a run file: a model, a loss and data that train in a moment.
#pragma once

#include <string>

namespace trainyard::test {

inline const std::string small_parts = R"([model]
type = "mlp"
layers = [8, 16, 3]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 96, batch_size = 16, shuffle = true }
val = { size = 32, batch_size = 16 }
)";

}  // namespace trainyard::test
