// Which edges or graphs are for training, val and test: a function of their number, the shares and a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace graph {

/// Numbers of what belongs to "train", "val" and "test", ascending.
using Splits = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

struct Shares {
  std::vector<double> of = {0.85, 0.05, 0.1};  ///< train, val and test
  std::int64_t seed = 0;

  /// For names and messages.
  std::string text() const;
};

/// Of `count` things, in an order that the seed gives: val and test have their shares, rounded down, train
/// the rest. Throws ConfigError unless there are three shares that add up to 1.
Splits split(std::int64_t count, const Shares& shares);

/// Remembers how the data called `data` is split for as long as `owner` is there. Throws ConfigError where
/// another split of it is open that is split in another way: what one trains on, the other would test on.
void agree(const std::string& data, const std::string& plan, const std::shared_ptr<const void>& owner);

}  // namespace graph
