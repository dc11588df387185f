// Pairs that cannot be in a run together, which validation once took and the training then ended with: each is refused,
// with both names, and either side is valid alone.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "contract/host_run.hpp"
#include "core/engine/verbs/commands.hpp"

namespace refused_pairs_tests {

using namespace trainyard;
using Catch::Contains;

namespace {

constexpr const char* base = R"(schema = 1
[run]
name = "pair"
[model]
type = "mlp"
layers = [8, 16, 3]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 64, batch_size = 16 }
[optimizer]
type = "sgd"
lr = 0.01
[trainer]
max_duration = "6ba"
[logging]
sinks = []
)";

/// What one side brings into the run file, by --set, or the ranks that train it.
struct Side {
  std::vector<std::string> sets;
  int ranks = 1;
};

struct Pair {
  Side a, b;
  std::vector<std::string> names;  ///< that the refusal has: those of both sides
};

config::Resolution resolved(const Side& side) {
  return contract::resolve(base, side.sets, side.ranks);
}

const Side hfta{{"executor={ type = \"hfta\", members = [{ set = [] }, { set = [\"run.seed=11\"] }] }"}};
const Side pipelined{{"executor={ type = \"pipelined\", mitigation = \"none\" }"}};
const Side pipelined_ranks{{"executor={ type = \"pipelined\", mitigation = \"none\", mode = \"dist\" }"}, 2};
const Side wavelet{{"executor={ type = \"wavelet\", sync = \"round\" }"}, 2};
const Side rolling{{"executor={ type = \"wavelet\", sync = \"rolling\" }"}, 2};
const Side dropout{{"model.dropout={ type = \"standard\", p = 0.2 }"}};
const Side mixed{{"trainer.precision=bf16-mixed"}};
const Side lstm{{"model={ type = \"lstm\" }"}};

Side optimizer(const std::string& options) {
  return {{"optimizer={ lr = 0.01, " + options + " }"}};
}
Side hook(const std::string& type) {
  return {{"hooks=[{ type = \"" + type + "\" }]"}};
}

std::vector<Pair> pairs() {
  return {
      {hfta, {{}, 2}, {"\"hfta\"", "one rank"}},
      {hfta, optimizer("type = \"rowwise_adagrad\""), {"\"hfta\"", "\"rowwise_adagrad\""}},
      {hfta, optimizer("type = \"lazy_adam\""), {"\"hfta\"", "\"lazy_adam\""}},
      {hfta, {{"model.dropout={ type = \"blockwise\" }"}}, {"\"hfta\"", "\"blockwise\""}},
      {hfta, {{"model.dropout={ type = \"dropconnect\" }"}}, {"\"hfta\"", "\"dropconnect\""}},
      {hfta, hook("rdrop"), {"\"hfta\"", "\"rdrop\""}},
      {hfta, hook("certified_loss"), {"\"hfta\"", "\"certified_loss\""}},
      {hfta, mixed, {"\"hfta\"", "trainer.precision", "\"bf16-mixed\""}},
      {pipelined, optimizer("type = \"adamw\""), {"\"pipelined\"", "\"adamw\""}},
      {pipelined, dropout, {"\"pipelined\"", "\"standard\""}},
      {pipelined,
       optimizer("type = \"sgd\", momentum = 0.9, nesterov = true"),
       {"\"pipelined\"", "optimizer.nesterov", "\"sgd\""}},
      {wavelet, dropout, {"\"wavelet\"", "\"standard\""}},
      {pipelined_ranks, {{"checkpoint={ type = \"cpr\" }"}}, {"\"pipelined\"", "\"cpr\""}},
      {{{"distributed.compressor={ type = \"dgc\" }"}, 2},
       optimizer("type = \"sgd\", momentum = 0.9"),
       {"\"dgc\"", "momentum", "\"sgd\""}},
      {hook("certified"), lstm, {"\"certified\"", "\"lstm\""}},
      {hook("certified_loss"),
       {{"model.dropout={ type = \"multi_sample\" }"}},
       {"\"certified_loss\"", "\"multi_sample\""}},
      {hook("certified_loss"), pipelined, {"\"certified_loss\"", "\"pipelined\""}},
      {hook("certified_loss"), lstm, {"\"certified_loss\"", "\"lstm\""}},
      {hook("certified"), mixed, {"\"certified\"", "trainer.precision", "\"bf16-mixed\""}},
  };
}

}  // namespace

TEST_CASE("pairs that cannot train together are refused at validation, with both names") {
  for (const Pair& pair : pairs()) {
    Side both{pair.a.sets, std::max(pair.a.ranks, pair.b.ranks)};
    both.sets.insert(both.sets.end(), pair.b.sets.begin(), pair.b.sets.end());
    std::string names;
    for (const std::string& name : pair.names) names += name + " ";
    INFO(names);
    for (const Side& alone : {pair.a, pair.b}) {
      const config::Resolution valid = resolved(alone);
      INFO(valid.findings.text());
      CHECK(valid.config.has_value());
    }
    const config::Resolution refused = resolved(both);
    CHECK_FALSE(refused.config.has_value());
    for (const std::string& name : pair.names) CHECK_THAT(refused.findings.text(), Contains(name));
  }
}

TEST_CASE("what only the network shows, or the data, is refused as validation builds the run") {
  const Side gelu{
      {"model={ type = \"sequential\", layers = [{ type = \"linear\", out = 8 }, { type = \"gelu\" }, "
       "{ type = \"linear\", out = 3 }] }"}};
  const Side numbers{{"data.kind=regression", "loss.type=mse", "model.layers=[8, 16, 1]"}};
  const Side one_layer{{"model.layers=[8, 3]"}};
  const Side single{{"data.classes=2", "loss.type=bce_with_logits", "model.layers=[8, 16, 1]"}};
  const std::vector<Pair> pairs = {
      {hook("certified"), gelu, {"certified", "\"gelu1\" (Gelu)"}},
      {hook("certified_loss"), gelu, {"certified_loss", "\"gelu1\" (Gelu)"}},
      {hook("certified"), numbers, {"certified", "no class a sample"}},
      {hook("certified_loss"), numbers, {"certified_loss", "no class a sample"}},
      {hook("rdrop"), numbers, {"rdrop", "are no classes"}},
      {hook("certified"), single, {"certified", "an output for each class"}},
      {hook("certified_loss"), single, {"certified_loss", "an output for each class"}},
      {hook("rdrop"), single, {"rdrop", "an output for each class", "(model \"mlp\", data \"synthetic\")"}},
      {one_layer, dropout, {"standard", "no dropout site", "(model \"mlp\", data \"synthetic\")"}},
      {one_layer, pipelined_ranks, {"pipelined", "1 stages, and 2 ranks"}},
      {one_layer, wavelet, {"wavelet", "1 layers, and 2 ranks"}},
      {{{"data.train.micro_batch_size=4"}}, rolling, {"wavelet", "micro_batch_size", "2 micro-batches"}},
  };
  const auto build = [](Side side, const Side& other) {
    side.sets.insert(side.sets.end(), other.sets.begin(), other.sets.end());
    side.ranks = std::max(side.ranks, other.ranks);
    const config::Resolution resolution = resolved(side);
    INFO(resolution.findings.text());
    REQUIRE(resolution.config.has_value());
    train::check_command(*resolution.config, contract::all_plugins());
  };
  for (const Pair& pair : pairs) {
    INFO(pair.names.front() << ", " << pair.names.back());
    CHECK_NOTHROW(build(pair.a, {}));
    CHECK_NOTHROW(build({}, pair.b));
    try {
      build(pair.a, pair.b);
      FAIL_CHECK("it was built");
    } catch (const Error& error) {
      for (const std::string& name : pair.names) CHECK_THAT(error.what(), Contains(name));
    }
  }
}

}  // namespace refused_pairs_tests
