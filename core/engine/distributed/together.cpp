#include "core/engine/distributed/together.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <numeric>
#include <span>

namespace trainyard::distributed {
namespace {

template <class Number>
std::string_view bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

}  // namespace

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
  std::vector<double> total(values.size(), 0.0), theirs(values.size());
  for (const std::string& each : world.gather(bytes_of(values))) {
    std::memcpy(theirs.data(), each.data(), std::min(each.size(), theirs.size() * sizeof(double)));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += theirs[i];
  }
  return total;
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
