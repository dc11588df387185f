// srifty against measured trainings of others: Gavel's throughputs of 1 to 8 GPUs (Narayanan et al., OSDI 2020). A link is
// fitted on one network, and the other network is predicted from its single-GPU throughput alone.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/tool/srifty/communication.hpp"
#include "plugins/tool/srifty/iteration.hpp"
#include "support/files.hpp"

namespace srifty_gavel_test {

using namespace srifty;

namespace {

std::string unpacked(const std::string& path) {
  std::string text, block(1 << 16, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  for (int got = 0; (got = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0;)
    text.append(block, 0, static_cast<std::size_t>(got));
  gzclose(file);
  return text;
}

struct Setup {
  int batch = 0, workers = 0;
  auto operator<=>(const Setup&) const = default;
};
/// Seconds of a step of all workers: the table has the steps of all workers together, a second.
using Steps = std::map<Setup, double>;

Steps steps_of(const nlohmann::json& table, const std::string& model) {
  Steps steps;
  for (const auto& [name, rates] : table.items()) {
    Setup setup;
    const std::string format = "('" + model + " (batch size %d)', %d)";
    if (std::sscanf(name.c_str(), format.c_str(), &setup.batch, &setup.workers) != 2) continue;
    if (rates.at("null") > 0.0) steps[setup] = setup.workers / rates.at("null").get<double>();
  }
  return steps;
}

/// The networks' bytes of gradients: 11.17 and 25.56 million parameters in single precision.
std::vector<Gradient> gradients_of(const std::string& model) {
  const int count = model == "ResNet-18" ? 60 : 160;
  const double bytes = (model == "ResNet-18" ? 11.17e6 : 25.56e6) * 4 / count;
  std::vector<Gradient> gradients;
  for (int i = 0; i < count; ++i) gradients.push_back({bytes, 1.0 - static_cast<double>(i) / count});
  return gradients;
}

struct Errors {
  double mean = 0, bias = 0, worst_tenth = 0;
  std::size_t count = 0;
};

using Predict = std::function<double(double alone, int workers)>;
Errors errors_of(const Steps& steps, const Predict& predict) {
  std::vector<double> errors;
  for (const auto& [setup, seconds] : steps) {
    if (setup.workers < 2 || !steps.contains({setup.batch, 1})) continue;
    errors.push_back(predict(steps.at({setup.batch, 1}), setup.workers) / seconds - 1.0);
  }
  Errors all{.count = errors.size()};
  for (const double each : errors) {
    all.mean += std::abs(each) / static_cast<double>(errors.size());
    all.bias += each / static_cast<double>(errors.size());
  }
  for (double& each : errors) each = std::abs(each);
  std::sort(errors.begin(), errors.end());
  all.worst_tenth = errors[static_cast<std::size_t>(0.9 * static_cast<double>(errors.size() - 1) + 0.5)];
  return all;
}

/// Forward takes a third of a step of one GPU, backward the rest.
Predict overlapped(const std::string& model, const Link& link) {
  const std::vector<Bucket> buckets = cut_into_buckets(gradients_of(model), 25 * mebibyte);
  return [buckets, link](double alone, int workers) {
    return step_seconds(std::vector{StepParts{.forward = alone / 3, .backward = alone * 2 / 3}}, buckets,
                        [&](double bytes) { return ring_seconds(workers, bytes, link); });
  };
}

Link link_fitted_to(const Steps& steps, const std::string& model) {
  std::tuple best{1e300, 0.0, 0.0};
  for (const double latency : {0.0, 1e-5, 1e-4, 3e-4, 1e-3})
    for (double bandwidth = 1e8; bandwidth < 1e11; bandwidth *= 1.26) {
      double squares = 0;
      const Predict predict = overlapped(model, {latency, bandwidth});
      for (const auto& [setup, seconds] : steps)
        if (setup.workers > 1 && steps.contains({setup.batch, 1}))
          squares += std::pow(predict(steps.at({setup.batch, 1}), setup.workers) / seconds - 1.0, 2);
      best = std::min(best, std::tuple{squares, latency, bandwidth});
    }
  return {std::get<1>(best), std::get<2>(best)};
}

}  // namespace

TEST_CASE("steps of a network on several GPUs, predicted from one GPU and another network's link",
          "[srifty][gavel]") {
  const std::string path = trainyard::test::real_data("cloud/gavel/simulation_throughputs.json.gz");
  if (path.empty()) return;
  const auto tables = nlohmann::json::parse(unpacked(path));
  std::printf("%-20s %-10s %3s  %-22s %-10s %-10s\n", "GPUs", "held out", "n", "ours: mean, bias, p90",
              "linear", "no overlap");
  for (const char* gpus :
       {"k80", "k80_unconsolidated", "p100", "p100_unconsolidated", "v100", "v100_unconsolidated"})
    for (const auto& [known, held] :
         {std::pair("ResNet-18", "ResNet-50"), std::pair("ResNet-50", "ResNet-18")}) {
      const Link link = link_fitted_to(steps_of(tables.at(gpus), known), known);
      const Steps steps = steps_of(tables.at(gpus), held);
      const std::vector<Bucket> buckets = cut_into_buckets(gradients_of(held), 25 * mebibyte);
      const Errors ours = errors_of(steps, overlapped(held, link));
      const Errors linear = errors_of(steps, [](double alone, int) { return alone; });
      const Errors apart = errors_of(steps, [&](double alone, int workers) {
        for (const Bucket& each : buckets) alone += ring_seconds(workers, each.bytes, link);
        return alone;
      });
      std::printf("%-20s %-10s %3zu  %5.1f %%, %+6.1f %%, %5.1f %%  %5.1f %%    %5.1f %%\n", gpus, held,
                  ours.count, 100 * ours.mean, 100 * ours.bias, 100 * ours.worst_tenth, 100 * linear.mean,
                  100 * apart.mean);
      if (std::string(gpus) != "p100_unconsolidated") continue;
      // The one table whose GPUs scale as GPUs behind a network do: nobody is faster than one GPU.
      CHECK(ours.mean < 0.15);
      CHECK(ours.mean < 0.6 * linear.mean);
      CHECK(ours.mean < 0.6 * apart.mean);
    }
}

}  // namespace srifty_gavel_test
