// Every shipped plugin with batches cut into micro-batches that do not divide them, and a last batch that is
// not full: the gradients of a step are those of its whole batch, within rounding.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace micro_batches_tests {

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;

namespace {

/// Plugins whose course depends on how a batch is cut, and why. Every other one promises that it does not.
const std::map<std::string, std::string> by_micro_batch = {
    {"dropout alpha", "draws for each micro-batch"},
    {"dropout dropblock", "draws for each micro-batch"},
    {"dropout dropconnect", "draws for each micro-batch"},
    {"dropout droppath", "draws for each micro-batch"},
    {"dropout multi_sample", "draws for each micro-batch"},
    {"dropout spatial", "draws for each micro-batch"},
    {"dropout standard", "draws for each micro-batch"},
    {"dropout variational", "draws for each micro-batch"},
    {"dropout zoneout", "draws for each micro-batch"},
    {"model gin", "normalises by the mean and variance of the nodes of a micro-batch"},
    {"model resnet", "normalises by the mean and variance of a micro-batch"},
    {"model resnet_imagenet", "normalises by the mean and variance of a micro-batch"},
    {"transform packed_activations", "rounds the activations of a micro-batch by their least and largest"},
};

/// A run as it was trained.
struct Course {
  std::vector<float> gradients;       ///< of all steps, one after the other
  std::vector<double> losses, rates;  ///< one a step
};

/// Batches of 24 rows. The last of an epoch is 5 + 4, or 4, where 5 + 5 + 5 or 10 + 10 are full.
constexpr std::pair<std::int64_t, std::int64_t> cuts[] = {{15, 5}, {20, 10}};

/// In a process of its own: code of plugins is never unmapped, and a process has no room for that of a
/// thousand runs.
Course course(const PluginFile& plugin, std::int64_t batch, std::int64_t micro) {
  Apart run;
  std::string text = host_run(plugin).text();
  if (const std::size_t none = text.find("sinks = []\n"); none != std::string::npos) text.erase(none, 11);
  const bool sink = plugin.manifest.kind == "sink" && plugin.manifest.name == "jsonl";
  if (!sink) text += "[[logging.sinks]]\ntype = \"jsonl\"\n";
  run.write(text + "[[hooks]]\ntype = \"gradients\"\nfile = \"" + run.folder().path("gradients") + "\"\n");
  const int status =
      run.train({"data.train.batch_size=" + std::to_string(batch),
                 "data.train.micro_batch_size=" + std::to_string(micro), "logging.interval=1ba"});
  INFO(run.said());
  REQUIRE(status == 0);
  Course found;
  const std::string bytes = test::read_file(run.folder().path("gradients"));
  found.gradients.resize(bytes.size() / sizeof(float));
  std::memcpy(found.gradients.data(), bytes.data(), bytes.size());
  for (const std::string& line : test::lines(run.run() + "/metrics.jsonl")) {
    const auto record = nlohmann::json::parse(line);
    if (record["what"] != "train") continue;
    found.losses.push_back(record["values"]["train/loss"]);
    found.rates.push_back(record["values"]["lr"]);
  }
  return found;
}

/// The largest difference, over the largest number.
template <class Numbers>
double error(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  double difference = 0.0, largest = 1e-6;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference = std::max<double>(difference, std::abs(found[i] - expected[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("micro-batches, also of a last batch that is not full, give the gradients of the whole batch") {
  std::set<std::string> dependent;
  for (const PluginFile& plugin : alone())
    for (const auto& [batch, micro] : cuts) {
      INFO(title(plugin) << ", batches of " << batch << " in " << micro);
      const Course whole = course(plugin, batch, batch), cut = course(plugin, batch, micro);
      CHECK(cut.losses.size() >= 4);
      CHECK(cut.rates == whole.rates);
      const double gradients = error(cut.gradients, whole.gradients);
      if (gradients > 1e-3) dependent.insert(title(plugin));
      if (by_micro_batch.contains(title(plugin))) {  // the same cut again is the same course
        CHECK(course(plugin, batch, micro).gradients == cut.gradients);
        continue;
      }
      CHECK(gradients < 1e-5);
      CHECK(error(cut.losses, whole.losses) < 1e-5);
    }
  // Nobody is named that keeps the promise, or is no more.
  std::set<std::string> named;
  for (const auto& [name, why] : by_micro_batch) named.insert(name);
  CHECK(dependent == named);
}

}  // namespace micro_batches_tests
