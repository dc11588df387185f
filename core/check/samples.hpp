// A small file of each format that shipped plugins read, for runs around a plugin that needs one. Torch-free.
#pragma once

#include <string>
#include <vector>

namespace trainyard::check {

/// Writes them into a folder and gives their paths: 24 rows of 16 features or an image, ten classes; text; clicks;
/// rows of few features; a network.
std::vector<std::string> write_samples(const std::string& folder);

}  // namespace trainyard::check
