#include "core/engine/distributed/together.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace trainyard::distributed {

unsigned any(World& world, unsigned bits) {
  const at::Tensor own = at::empty({1}, at::kLong), all = at::empty({world.size()}, at::kLong);
  own.fill_(static_cast<std::int64_t>(bits));
  world.all_gather(all, own)->wait();
  const std::int64_t* each = all.const_data_ptr<std::int64_t>();
  return std::accumulate(each, each + world.size(), 0U, [](unsigned found, std::int64_t theirs) {
    return found | static_cast<unsigned>(theirs);
  });
}

std::vector<double> sum(World& world, const std::vector<double>& values) {
  const at::Tensor total = at::empty({std::ssize(values)}, at::kDouble);
  double* const all = total.mutable_data_ptr<double>();
  std::ranges::copy(values, all);
  world.all_reduce(total)->wait();
  return {all, all + values.size()};
}

Values from_first(World& world, const Values& own) {
  State state;
  for (const auto& [name, value] : own) state.scalars.emplace(name, value);
  const std::vector<State> sent = from_bytes(world.from_first(to_bytes({state})));
  Values first;
  for (const auto& [name, value] : sent.front().scalars) first.emplace(name, std::get<double>(value));
  return first;
}

void take_from_first(World& world, const std::vector<at::Tensor>& tensors) {
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (const at::Tensor& tensor : tensors) exchanges.push_back(world.broadcast(tensor, 0));
  for (const auto& exchange : exchanges) exchange->wait();
  world.settle();
}

}  // namespace trainyard::distributed
