#include <trainyard/testing/state.hpp>

#include <functional>
#include <set>

#include <trainyard/error.hpp>

namespace trainyard::testing {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && digest(a) == digest(b);
}

template <class Map, class Same>
void compare(const Map& a, const Map& b, const Same& same, std::vector<std::string>& found) {
  std::set<std::string> names;
  for (const auto& each : a) names.insert(each.first);
  for (const auto& each : b) names.insert(each.first);
  for (const std::string& name : names) {
    const auto left = a.find(name), right = b.find(name);
    if (left == a.end() || right == b.end() || !same(left->second, right->second)) found.push_back(name);
  }
}

}  // namespace

State copy(const State& state) {
  State result = state;
  for (auto& [name, tensor] : result.tensors) tensor = tensor.detach().clone();
  return result;
}

std::vector<std::string> differences(const State& a, const State& b) {
  std::vector<std::string> found;
  compare(a.scalars, b.scalars, std::equal_to<>(), found);
  compare(a.tensors, b.tensors, same, found);
  return found;
}

std::vector<std::string> round_trip(const MadePlugin& from, MadePlugin& into) {
  const State saved = copy(from.saved());
  into.load(copy(saved));
  return differences(saved, into.saved());
}

std::vector<std::string> not_missed(const State& state, MadePlugin& into) {
  std::vector<std::string> found;
  const auto missed = [&](const State& truncated) {
    try {
      into.load(truncated);
      return false;
    } catch (const PluginError&) {
    } catch (const DataError&) {}
    return true;
  };
  for (const auto& [name, value] : state.scalars) {
    State truncated = copy(state);
    truncated.scalars.erase(name);
    if (!missed(truncated)) found.push_back(name);
  }
  for (const auto& [name, value] : state.tensors) {
    State truncated = copy(state);
    truncated.tensors.erase(name);
    if (!missed(truncated)) found.push_back(name);
  }
  return found;
}

}  // namespace trainyard::testing
