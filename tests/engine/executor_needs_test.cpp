// Which rules and hooks each executor can have in its runs: validation refuses the others, or warns of them, and names
// both sides. What is expected stands here by hand, from what the executors show to hooks and read of them, so that a
// manifest that claims more than its executor does is found.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include <trainyard/rule.hpp>

#include "core/runfile/load.hpp"
#include "core/runfile/resolve.hpp"
#include "support/folder.hpp"
#include "support/live.hpp"
#include "support/run.hpp"
#include "support/small_parts.hpp"

namespace executor_needs_tests {

using namespace trainyard;
using Names = std::vector<std::string>;

namespace {

struct Row {
  std::string executor;  ///< the lines of its table
  int ranks = 1;
  Names refused, warned;  ///< all others are accepted
};

/// What shows no outputs of single nodes, no gradients, no losses, and no outputs in the step that they are of.
const Names of_taps = {"dead_relu", "saturated_activation", "poor_weight_initialization"},
            of_gradients = {"vanishing_gradient", "gradients", "halving"},
            of_losses = {"overfit", "overtraining", "stalled_training", "losses"},
            of_outputs = {"confusion", "class_imbalance"};

Names all_of(const std::vector<Names>& parts) {
  Names all;
  for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const std::vector<Row> rows = {
    {.executor = "type = \"eager\"\n"},
    {.executor = "type = \"compiled\"\n"},
    // The members' gradients lie in the array, its operators are no nodes of the network, and averages are of one model.
    {.executor = "type = \"hfta\"\nmembers = [{}, { set = [\"run.seed=11\"] }]\n",
     .refused = all_of({of_taps, of_gradients, {"ema", "swa"}}),
     .warned = {"exploding_tensor", "all_zero"}},
    // Its stages update by themselves, from the rates of the schedule; outputs are of samples of earlier steps.
    {.executor = "type = \"pipelined\"\nmode = \"sim\"\n",
     .refused = all_of({of_taps, of_gradients, of_outputs, {"braking", "decaying", "lr_scale"}}),
     .warned = {"exploding_tensor", "all_zero"}},
    // Twins of the network make the passes, on threads of their own.
    {.executor = "type = \"wavelet\"\n",
     .refused = all_of({of_taps, of_losses, of_outputs}),
     .warned = {"exploding_tensor", "similar_across_runs"}},
    {.executor = "type = \"wavelet\"\nsync = \"stale1\"\n",
     .refused = all_of({of_taps, of_losses, of_outputs}),
     .warned = {"exploding_tensor", "similar_across_runs"}},
    // Each rank has a stage, whose gradients lie in parts of the network.
    {.executor = "type = \"wavelet\"\nsync = \"round\"\n",
     .ranks = 2,
     .refused = all_of({of_taps, of_gradients, of_losses, of_outputs}),
     .warned = {"exploding_tensor", "all_zero", "similar_across_runs"}}};

struct Guest {
  std::string name, plugin, table;
};

/// Every shipped rule by default, some with options that ask for more, and hooks that write what a step works with.
std::vector<Guest> guests(const std::string& folder) {
  std::vector<Guest> all;
  for (const plugins::PluginFile& file : test::shipped().files()) {
    if (file.manifest.kind != Rule::kind.name) continue;
    const std::string& name = file.manifest.name;
    all.push_back({name, name, "[[rules]]\ntype = \"" + name + "\"\n"});
    if (name == "similar_across_runs") all.back().table += "other = \"" + folder + "\"\n";
  }
  const auto rule = [&](const std::string& name, const std::string& type, const std::string& options) {
    all.push_back({name, type, "[[rules]]\ntype = \"" + type + "\"\n" + options});
  };
  rule("lr_scale", "loss_not_decreasing", "action = \"lr_scale\"\n");
  rule("gradients", "tensor_variance", "tensors = \"gradients\"\nmax_threshold = 1.0\n");
  rule("losses", "exploding_tensor", "tensors = \"losses\"\n");
  for (const char* hook : {"halving", "braking", "decaying", "permuted_labels", "misfeeding", "ema", "swa"})
    all.push_back({hook, hook, "[[hooks]]\ntype = \"" + std::string(hook) + "\"\n"});
  return all;
}

config::Resolution resolved(const test::Folder& folder, const Row& row, const Guest& guest) {
  const std::string text = "schema = 1\n" + test::small_parts +
                           "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n[trainer]\n"
                           "max_duration = \"2ep\"\n[executor]\n" +
                           row.executor + guest.table;
  config::Environment environment{folder.path()};
  environment.ranks = environment.local_ranks = row.ranks;
  return config::resolve(config::load({folder.write("run.toml", text)}, {}, environment), test::registry());
}

}  // namespace

TEST_CASE("rules and hooks are refused where an executor shows them nothing, or takes no note of them") {
  const test::Folder folder;
  for (const Row& row : rows) {
    const std::string executor = row.executor.substr(7, row.executor.find('\n') - 7);
    for (const Guest& guest : guests(folder.path())) {
      INFO(row.executor << guest.table);
      const config::Resolution found = resolved(folder, row, guest);
      // The recorder of rules keeps the losses, too, and says where it cannot.
      const auto of_recorder = [](const config::Finding& each) {
        return each.code == "E324" && each.message.starts_with("recorder: ");
      };
      const bool rule = guest.table.starts_with("[[rules]]"), has_losses = executor != "\"wavelet\"";
      std::vector<config::Finding> findings = found.findings.list();
      CHECK(std::erase_if(findings, of_recorder) == (rule && !has_losses ? 1U : 0U));
      const std::string text = found.findings.text();
      INFO(text);
      const bool refused = std::ranges::count(row.refused, guest.name) > 0,
                 warned = std::ranges::count(row.warned, guest.name) > 0;
      CHECK(found.config.has_value() == !refused);
      CHECK(findings.empty() == !(refused || warned));
      for (const config::Finding& each : findings) {
        CHECK((each.code == "E324" ? !refused : refused && (each.code == "E303" || each.code == "E322")));
        CHECK_THAT(each.message, Catch::Contains("\"" + guest.plugin + "\"") && Catch::Contains(executor));
      }
    }
  }
}

}  // namespace executor_needs_tests
