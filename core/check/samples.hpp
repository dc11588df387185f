// Makes a small file of each format that shipped plugins read, for runs around a plugin. Torch-free.
#pragma once

#include <string>
#include <vector>

namespace trainyard::check {

/// Writes the files into a folder and returns their paths: 24 rows of 16 features or an image, ten classes;
/// text; clicks; rows of few features; a network.
std::vector<std::string> write_samples(const std::string& folder);

}  // namespace trainyard::check
