#include "shares.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <sstream>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

namespace graph {

using namespace trainyard;

std::string Shares::text() const {
  std::ostringstream out;
  out.precision(17);
  out << "shares = [";
  for (std::size_t i = 0; i < of.size(); ++i) out << (i == 0 ? "" : ", ") << of[i];
  out << "], split_seed = " << seed;
  return out.str();
}

Splits split(std::int64_t count, const Shares& shares) {
  constexpr double rounding = 1e-9;
  const double sum = std::accumulate(shares.of.begin(), shares.of.end(), 0.0);
  if (shares.of.size() != 3 || std::abs(sum - 1.0) > rounding)
    throw ConfigError(
        "found " + shares.text() +
        ", expected three shares that add up to 1, of train, val and test, such as [0.85, 0.05, 0.1]");
  const RandomStream random(static_cast<std::uint64_t>(shares.seed), "graph/shares");
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t last = order.size(); last > 1; --last)  // Fisher and Yates
    std::swap(order[last - 1], order[random.below(last, last)]);
  const auto part = [&](std::size_t which) {
    return static_cast<std::ptrdiff_t>(shares.of[which] * static_cast<double>(count) + rounding);
  };
  const auto val = order.begin() + part(1), test = val + part(2);
  Splits splits = {{"train", {test, order.end()}}, {"val", {order.begin(), val}}, {"test", {val, test}}};
  for (auto& [name, numbers] : splits) std::sort(numbers.begin(), numbers.end());
  return splits;
}

void agree(const std::string& data, const std::string& plan, const std::shared_ptr<const void>& owner) {
  struct Open {
    std::weak_ptr<const void> owner;
    std::string plan;
  };
  static std::mutex mutex;
  static std::map<std::string, Open> open;
  const std::lock_guard lock(mutex);
  std::erase_if(open, [](const auto& entry) { return entry.second.owner.expired(); });
  const auto [known, added] = open.try_emplace(data, Open{owner, plan});
  if (!added && known->second.plan != plan)
    throw ConfigError("a split of the data has " + plan + ", and another " + known->second.plan +
                      ": what one trains on the other would test on; give them once, in [data]");
}

}  // namespace graph
