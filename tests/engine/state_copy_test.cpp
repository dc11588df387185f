// Copies that are taken beside a run: whatever it writes next, they are what it was.
#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <string_view>
#include <thread>

#include "core/engine/swap/swaps.hpp"
#include "core/engine/train/state_copy.hpp"
#include "support/live.hpp"

namespace state_copy_tests {

using namespace trainyard;
using test::LiveRun;
using test::registry;
using train::StateCopy;

namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

/// The first tensor or scalar that differs, but for the time that a run takes; "" where none does.
std::string difference(const std::vector<State>& a, const std::vector<State>& b) {
  if (a.size() != b.size()) return "the number of states";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].owner != b[i].owner) return a[i].owner;
    if (a[i].owner != "run" && a[i].scalars != b[i].scalars) return a[i].owner + ": its scalars";
    if (a[i].tensors.size() != b[i].tensors.size()) return a[i].owner + ": their number";
    for (const auto& [name, tensor] : a[i].tensors)
      if (!same_bits(tensor, b[i].tensors.at(name))) return a[i].owner + "/" + name;
  }
  return "";
}

std::vector<State> clones(std::vector<State> states) {
  for (State& state : states)
    for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  return states;
}

State state_of(const std::string& owner, const std::map<std::string, at::Tensor, std::less<>>& tensors) {
  return {.owner = owner, .version = {}, .scalars = {}, .tensors = tensors};
}

bool steady(const State& state, const at::Tensor&) {
  return state.owner == "steady";
}

constexpr std::int64_t large = 1 << 20;  // numbers

const std::string mlp = "[model]\ntype = \"mlp\"\nlayers = [256, 1024, 16]\n";  // 1 MB, its largest tensor
const std::string normalised = R"(
[model]
type = "sequential"
layers = [{ type = "linear", out = 20000 }, { type = "batch_norm" }, { type = "relu" }, { type = "linear", out = 16 }]
)";

std::string text_of(const std::string& model, const std::string& more = {}) {
  return "schema = 1\n[run]\nname = \"copies\"\nseed = 5\nthreads = { intra_op = 1, inter_op = 1 }\n" +
         model +
         "[loss]\ntype = \"cross_entropy\"\n[data]\ntype = \"synthetic\"\nkind = \"classification\"\n"
         "shape = [256]\nclasses = 16\ntrain = { size = 64, batch_size = 8, micro_batch_size = 4 }\n"
         "val = { size = 16 }\n[optimizer]\ntype = \"adamw\"\nlr = 0.01\n"
         "[trainer]\nmax_duration = \"12ba\"\n" +
         more;
}

std::string hook(const std::string& type, const std::string& at) {
  return "[[hooks]]\ntype = \"" + type + "\"\n" + (at.empty() ? "" : "at = \"" + at + "\"\n");
}

/// Of a swap at step 5, which nobody helps to copy for: what differs two steps later from what the run was.
/// `waited`: something was left to copy once the swap was made. `evaluated`: at once, as a client may ask.
std::string difference_after(const std::string& text, bool& waited, const std::string& slot = "optimizer",
                             bool evaluated = false) {
  LiveRun run(text, registry());
  std::unique_ptr<train::PreparedSwap> swap;
  std::shared_ptr<StateCopy> before;
  std::vector<State> expected;
  std::string found = "nothing was compared";
  run.on_safe_point = [&] {
    if (run->clock().step == 7) found = difference(before->states(), expected);
    if (run->clock().step != 5 || swap) return;
    swap = train::Swaps(*run).prepare({{.slot = slot, .type = {}, .options = {}}});
    expected = clones(run->states().snapshot().states);
    before = train::Swaps(*run).commit(*swap, true);
    waited = !before->settled();
    if (evaluated) run->loop().evaluate_silently(run->loop().evaluations().front());
  };
  run.fit();
  return found;
}

}  // namespace

TEST_CASE("a copy is of what its tensors held when it was asked for, whoever writes next") {
  const at::Tensor shared = at::randn({large});
  const std::vector<State> states = {
      state_of("steady", {{"plain", at::randn({large})},
                          {"turned", at::randn({1024, 700}).t()},
                          {"half", at::randn({large}).to(at::kBFloat16)},
                          {"every other", at::randn({2 * large}).slice(0, 0, 2 * large, 2)},
                          {"odd", at::randn({large + 13})},
                          {"shared", shared.slice(0, 100)},
                          {"small", at::randn({3})},
                          {"scalar", at::scalar_tensor(2.5)},
                          {"empty", at::empty({0, 4})}}),
      state_of("written", {{"shared", shared}, {"large", at::randn({large})}, {"small", at::randn({3})}})};
  const std::vector<State> expected = clones(states);
  StateCopy copy(states, steady);
  CHECK_FALSE(copy.settled());
  for (const auto& [name, tensor] : states[1].tensors) tensor.zero_();  // not steady: may be written at once
  std::thread other([&] { copy.help(); });
  copy.settle();
  for (const auto& [name, tensor] : states[0].tensors) tensor.zero_();
  other.join();
  CHECK(copy.settled());
  CHECK(difference(copy.states(), expected) == "");
  CHECK(copy.states()[0].tensors.at("turned").strides() == expected[0].tensors.at("turned").strides());
}

TEST_CASE("a copy needs no help, and may be let go before it is whole") {
  const std::vector<State> states = {state_of("steady", {{"plain", at::randn({large})}})};
  const std::vector<State> expected = clones(states);
  StateCopy alone(states, steady);
  CHECK(difference(alone.states(), expected) == "");
  for (int i = 0; i < 20; ++i) {
    const auto copy = std::make_shared<StateCopy>(states, steady);
    std::thread([copy] { copy->help(); }).detach();
  }
  StateCopy at_once(states);
  CHECK(at_once.settled());
}

TEST_CASE("the copy of a swap is settled before weights or the optimizer's state are written") {
  bool waited = false;
  for (const std::string& model : {mlp, normalised})
    for (const std::string slot : {"optimizer", "schedule", "model"}) {
      INFO(slot << " of" << model);
      CHECK(difference_after(text_of(model, "[schedule]\ntype = \"constant\"\n"), waited, slot) == "");
      CHECK(waited);
    }
}

TEST_CASE("the copy of a swap is settled before hooks write the weights") {
  bool waited = false;
  for (const char* at : {"never", "before_step", "after_step", "eval_start", "eval_end"}) {
    INFO("writes at " << at);
    const bool evaluated = std::string_view(at).starts_with("eval");
    const std::string text = text_of(mlp, hook("writer", at));
    CHECK(difference_after(text, waited, "optimizer", evaluated) == "");
    CHECK(waited);
    CHECK(difference_after(text, waited, "hooks.writer", evaluated) == "");
  }
  CHECK(difference_after(text_of(mlp, hook("ema", "")), waited) == "");
  CHECK(difference_after(text_of(mlp, hook("ema", "")), waited, "hooks.ema") == "");
}

TEST_CASE("a swap of a run with 100 MB of state is taken back to the bit") {
  std::string text = text_of("[model]\ntype = \"mlp\"\nlayers = [256, 8192, 768, 16]\n");
  text += hook("faulty", "before_step") + "step = 1000\nway = \"throw\"\n";
  LiveRun undisturbed(text, registry());
  undisturbed.fit();
  for (const std::int64_t fails : {6, 7}) {
    Table options;
    options.set("step", Value(fails));
    LiveRun run(text, registry(), {},
                {{5, {.slot = "hooks.faulty", .type = {}, .options = options, .watch = "3ba"}}});
    run.fit();
    CHECK(run.count("swap_rolled_back") == 1);
    CHECK(run.result() == undisturbed.result());
  }
}

}  // namespace state_copy_tests
