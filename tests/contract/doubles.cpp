// Every shipped plugin in a run in double precision: it trains there, with all weights and all of the optimizer's state
// in doubles, or validation refuses it by its name.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "core/plugins/kinds.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace doubles_tests {

using namespace trainyard;
using namespace trainyard::contract;
using Catch::Matchers::Contains;
using plugins::PluginFile;
using test::shipped;

namespace {

/// Plugins that work in single precision alone, and why. Every other one promises that it works in both.
const std::map<std::string, std::string> in_single_precision = {
    {"compressor bf16", "buckets are of floats"},
    {"compressor dgc", "buckets are of floats"},
    {"compressor fp16", "buckets are of floats"},
    {"compressor hitopk", "buckets are of floats"},
    {"compressor mstopk", "buckets are of floats"},
    {"compressor powersgd", "buckets are of floats"},
    {"compressor randomk", "buckets are of floats"},
    {"compressor topk", "buckets are of floats"},
    {"executor pipelined", "has kernels of floats for its updates"},
    {"hook certified", "proves what programs in single precision do"},
    {"model ensemble", "its members are networks that other runs trained"},
    {"model slide", "has kernels of floats, and weights in halves"},
    {"model trees", "XGBoost computes in floats"},
    {"optimizer lazy_adam", "has kernels of floats for rows"},
    {"transform packed_activations", "rounds floats to 8 bits"},
};

const std::vector<std::string> doubled = {"trainer.precision=fp64"};

/// Those that train here beside one of them only.
const std::set<std::string> beside_such = {"dataset xc", "executor boosting"};

std::string refusal(const std::string& kind, const std::string& name) {
  return "the " + kind + " \"" + name +
         "\" needs weights of single precision, and trainer.precision is \"fp64\"";
}

/// Trains to the end. Findings of validation, empty where there are none.
std::string train_in_doubles(const std::string& text) {
  const test::Folder folder;  // for what writes files
  std::vector<std::string> sets = doubled;
  sets.push_back("run.output_dir=" + folder.path());
  config::Resolution resolution = test::resolve(text, sets);
  if (!resolution.config) return resolution.findings.text();
  test::BuiltRun run(std::move(*resolution.config));
  run->loop().fit();
  CHECK(std::isfinite(run->loop().latest().at("val/loss")));
  int tensors = 0;
  for (const State& state : run->states().snapshot().states)
    for (const auto& [name, tensor] : state.tensors) {
      if ((state.owner != "model" && state.owner != "optimizer") || !tensor.is_floating_point()) continue;
      INFO(state.owner << "/" << name);
      CHECK(tensor.scalar_type() == at::kDouble);
      ++tensors;
    }
  CHECK(tensors > 0);
  for (const Batch& batch : run->first_batches("val", 1)) {
    for (const at::Tensor& input : batch.inputs)
      CHECK((!input.is_floating_point() || input.scalar_type() == at::kDouble));
    CHECK((!batch.target.is_floating_point() || batch.target.scalar_type() == at::kDouble));
  }
  return {};
}

}  // namespace

TEST_CASE("every plugin trains in double precision, or is refused by its name") {
  std::set<std::string> refused, beside, expected;
  for (const auto& [name, why] : in_single_precision) expected.insert(name);
  for (const PluginFile& plugin : shipped().files()) {
    if (plugins::find_kind(plugin.manifest.kind)->beside) continue;
    INFO(title(plugin));
    const std::string text = host_run(plugin).text();
    INFO(text);
    std::string said;
    if (needs_ranks(plugin)) {
      const Apart ranks(text);
      if (ranks.train(doubled, 2) != 0) said = ranks.said();
    } else {
      REQUIRE_NOTHROW(said = train_in_doubles(text));
    }
    if (said.empty()) continue;
    const bool own = said.find(refusal(plugin.manifest.kind, plugin.manifest.name)) != std::string::npos;
    (own ? refused : beside).insert(title(plugin));
    if (!own) CHECK_THAT(said, Contains(refusal("model", "slide")) || Contains(refusal("model", "trees")));
  }
  CHECK(refused == expected);
  CHECK(beside == beside_such);
}

}  // namespace doubles_tests
