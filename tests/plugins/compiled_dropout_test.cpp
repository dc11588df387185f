// Compiled passes of networks in which a dropout acts: LibTorch computes the nodes at which it does, and no others.
#include <catch2/catch.hpp>

#include <memory>
#include <set>
#include <string>

#include <trainyard/dropout.hpp>

#include "plugins/executor/compiled/plan.hpp"
#include "tests/plugins/compiled_networks.hpp"
#include "tests/support/plugin.hpp"

namespace compiled_dropout_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Plan;
using compiled::PlanKey;

/// Two blocks with attention and a dropout, and a cell behind them.
Graph blocks_and_cell() {
  GraphBuilder b(schema_of({5, 12}), 3);
  ValueId x = b.input();
  for (const std::string block : {"h0", "h1"}) {
    const auto part = [&](const char* name) {
      return b.reshape(b.linear(b.flatten(x, 2), block + name, 12), {-1, 5, 12});
    };
    const ValueId y = b.attention(part(".q"), part(".k"), part(".v"), block + ".attn", 3, true);
    x = b.add(x, b.dropout(y, block + ".drop"));
  }
  return b.finish(b.linear(b.flatten(b.lstm(x, "lstm", 7)), "end", 4));
}

Table sites(const char* pattern) {
  Table options = test::table({{"p", 0.3}});
  options.set("sites", Value(std::vector<Value>{Value(pattern)}));
  return options;
}

TEST_CASE("A compiled pass leaves to LibTorch the nodes at which the dropout acts, and no others",
          "[compiled]") {
  using Nodes = std::set<std::string>;
  const Nodes both = {"h0.drop (Dropout)", "h1.drop (Dropout)"};
  const Table early = test::table({{"p", 0.3}, {"when", "early"}, {"cutoff", "10ba"}});
  const struct {
    const char* type;
    Table options;
    std::uint64_t step;
    Nodes training, evaluation;
  } cases[] = {{"standard", {}, 0, both, {}},
               {"standard", sites("h0.*"), 0, {"h0.drop (Dropout)"}, {}},
               {"standard", sites("h1.attn_weights"), 0, {"h1.attn (Attention)"}, {}},
               {"zoneout", {}, 0, {"lstm (LSTM)"}, {"lstm (LSTM)"}},
               {"standard", early, 9, both, {}},
               {"standard", early, 10, {}, {}}};
  for (const auto& [type, options, step, in_training, in_evaluation] : cases) {
    INFO(type << ", step " << step);
    GraphNetwork network(blocks_and_cell());
    const auto dropout = test::make<Dropout>(type, options);
    const DropoutPlan places(*dropout, network.dropout_places(), {.total_steps = 20});
    network.set_dropout(&places, 5);
    for (const bool trains : {true, false}) {
      const ForwardContext pass{.training = trains, .step = step};
      const auto plan = std::make_shared<Plan>(
          network,
          PlanKey{.inputs = {{6, 5, 12}}, .training = trains, .dropped = network.dropped_nodes(pass)},
          compiled::Choices{});
      CHECK(Nodes(plan->by_libtorch().begin(), plan->by_libtorch().end()) ==
            (trains ? in_training : in_evaluation));
      const Batch batch = batch_of(at::randn({6, 5, 12}));
      if (!trains) {
        const at::NoGradGuard off;
        CHECK(apart(plan->forward(batch, pass), network.forward(batch, pass)) < 1e-5);
        continue;
      }
      const at::Tensor gradient = at::randn({6, 4});
      const Found eager = through(
          network, [&](const Batch& its) { return network.forward(its, pass); }, batch, gradient);
      const Found found = through(
          network, [&](const Batch& its) { return plan->forward(its, pass); }, batch, gradient);
      CHECK(is_near(found.output, eager.output, eager.output));
      for (std::size_t i = 0; i < eager.gradients.size(); ++i)
        CHECK(is_near(found.gradients[i], eager.gradients[i], eager.gradients[i]));
    }
  }
}

}  // namespace

}  // namespace compiled_dropout_tests
