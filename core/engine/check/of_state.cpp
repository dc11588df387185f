// state.*: tests of the state that a plugin saves, and of what it does with states that it did not save.
#include <cmath>
#include <limits>
#include <random>

#include <ATen/Functions.h>

#include <trainyard/state.hpp>
#include <trainyard/testing/state.hpp>

#include "core/engine/check/built.hpp"
#include "core/engine/check/groups.hpp"

namespace trainyard::check {
namespace {

bool empty(const State& state) {
  return state.scalars.empty() && state.tensors.empty();
}
const Outcome stateless = {Verdict::skip, "it saves no state", {}};

/// Trains a run and returns the plugin's state.
State trained_state(const Subject& subject) {
  Built used(subject);
  doing("a run trains");
  used.fit();
  doing("it is saved");
  return testing::copy(used.saved());
}

/// Loads a state into a fresh object; returns the message with which it was refused, or an empty string.
std::string load(Built& fresh, const State& state, const std::string& what) {
  doing(what);
  try {
    fresh.plugin().load(StateReader(state));
    return {};
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "?" : error.what();
  }
}

Scalar random_scalar(const Scalar& like, std::mt19937_64& dice) {
  const std::int64_t integers[] = {-1, 0, std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min(),
                                   static_cast<std::int64_t>(dice() % 100000)};
  const double numbers[] = {-1.0, 0.0, 1e300, std::nan(""), std::numeric_limits<double>::infinity()};
  if (std::holds_alternative<bool>(like)) return dice() % 2 == 0;
  if (std::holds_alternative<std::int64_t>(like)) return integers[dice() % std::size(integers)];
  if (std::holds_alternative<double>(like)) return numbers[dice() % std::size(numbers)];
  std::string text(dice() % 40, '\0');
  for (char& letter : text) letter = static_cast<char>(dice());
  return text;
}

at::Tensor random_tensor(const at::Tensor& like, std::mt19937_64& dice) {
  switch (dice() % 4) {
    case 0: return at::zeros({0}, like.options());
    case 1: return at::zeros({static_cast<std::int64_t>(dice() % 7), 3}, like.options());
    case 2: return at::full_like(like, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
    default: {
      at::Tensor bytes = like.clone();
      auto* const begin = static_cast<unsigned char*>(bytes.mutable_data_ptr());
      if (bytes.is_contiguous())
        for (std::size_t i = 0; i < bytes.nbytes(); ++i) begin[i] = static_cast<unsigned char>(dice());
      return bytes;
    }
  }
}

State random_like(const State& state, std::mt19937_64& dice) {
  State other = state;
  for (auto& [name, value] : other.scalars)
    if (dice() % 2 == 0) value = random_scalar(value, dice);
  for (auto& [name, tensor] : other.tensors)
    if (dice() % 2 == 0) tensor = random_tensor(tensor, dice);
  return other;
}

}  // namespace

Outcome round_trip(const Subject& subject) {
  const State state = trained_state(subject);
  if (empty(state)) return stateless;
  Built fresh(subject);
  if (const std::string refused =
          load(fresh, testing::copy(state), "what it saved is loaded into a fresh object");
      !refused.empty())
    return failed("what it saved is refused by a fresh object: " + refused);
  doing("it is saved again");
  const std::vector<std::string> differing = testing::differences(state, fresh.saved());
  if (differing.empty()) return {};
  return failed("`" + differing.front() +
                "` was saved, and is another after load: save and load have to agree "
                "on every name");
}

Outcome truncated(const Subject& subject) {
  const State state = trained_state(subject);
  if (empty(state)) return stateless;
  std::string taken;
  // An object may begin anew if the missing part means that there was nothing; a tensor may have any length
  // if the object keeps that length.
  const auto try_part = [&](const std::string& name, const State& part) {
    Built fresh(subject);
    const std::string anew = trainyard::digest(fresh.saved());
    if (!load(fresh, testing::copy(part), "a state is loaded without `" + name + "`").empty()) return;
    const std::string now = trainyard::digest(fresh.saved());
    if (now != anew && now != trainyard::digest(part) && taken.empty()) taken = name;
  };
  for (const auto& [name, value] : state.scalars) {
    State part = state;
    part.scalars.erase(name);
    try_part(name, part);
  }
  for (const auto& [name, tensor] : state.tensors) {
    State part = state;
    part.tensors.erase(name);
    try_part(name, part);
    if (tensor.numel() < 2 || tensor.dim() == 0) continue;
    part.tensors[name] = tensor.narrow(0, 0, tensor.size(0) / 2).clone();
    try_part("the second half of " + name, part);
  }
  if (taken.empty()) return {};
  return failed("a state without `" + taken +
                "` is taken without a word: read it with StateReader, which throws, and compare shapes");
}

Outcome random_state(const Subject& subject) {
  const State state = trained_state(subject);
  if (empty(state)) return stateless;
  constexpr int trials = 12;
  std::mt19937_64 dice(subject.seed);
  for (int trial = 0; trial < trials; ++trial) {
    Built fresh(subject);
    const State other = random_like(testing::copy(state), dice);
    const std::string what = "a state of random values is loaded (" + std::to_string(trial + 1) + " of " +
                             std::to_string(trials) + ", --seed " + std::to_string(subject.seed) + ")";
    if (!load(fresh, other, what).empty()) continue;
    doing("a run goes on from random values that it took (" + std::to_string(trial + 1) + ")");
    try {
      fresh.fit();
    } catch (const Error&) {
      // An error with a message is accepted.
    }
  }
  return {};
}

Outcome older(const Subject& subject) {
  State state = trained_state(subject);
  if (empty(state)) return stateless;
  for (const char* version : {"0.0.1", "0.9", "1", ""}) {
    state.version = version;
    Built fresh(subject);
    load(fresh, testing::copy(state), std::string("a state of version \"") + version + "\" is loaded");
  }
  return {};
}

}  // namespace trainyard::check
