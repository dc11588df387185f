// What can be told of saved weights without an answer to compare them with: values that are not finite,
// values that are zero, parameters that no training step moves, and what a few steps make of the metrics. The
// steps are undone.
#include <map>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

namespace {

using namespace trainyard;

class Audit final : public Tool {
 public:
  struct Options {
    std::int64_t steps = 1;
    bool evaluate = true;
  };
  static void describe(Manifest<Options>& m) {
    m.name("audit").version("1.0.0").summary(
        "Looks for weights that are not finite, zero, or moved by no step.");
    m.option("steps", &Options::steps, "steps of training, undone afterwards; 0: none").min(0);
    m.option("evaluate", &Options::evaluate, "metrics before and after these steps");
  }
  explicit Audit(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    Report report;
    const std::vector<NamedTensor> parameters = shop.network().parameters();
    std::vector<at::Tensor> before;
    for (const NamedTensor& each : parameters) before.push_back(each.tensor.detach().clone());
    std::vector<bool> moved(parameters.size(), false);
    Metrics first, then;
    if (options_.evaluate) first = metrics(shop);
    if (options_.steps > 0 && !shop.stopping())
      shop.train(options_.steps, [&] {
        for (std::size_t i = 0; i < parameters.size(); ++i)
          moved[i] = !at::equal(parameters[i].tensor.detach(), before[i]);
        if (options_.evaluate) then = metrics(shop);
      });
    if (shop.stopping()) return report;
    add_facts(report, parameters, moved);
    for (const auto& [name, value] : first) report.facts.emplace_back(name, value);
    for (const auto& [name, value] : then) report.facts.emplace_back(name + " after", value);
    report.facts.insert(report.facts.begin(), {"weights", shop.source()});
    return report;
  }

 private:
  using Metrics = std::map<std::string, double>;

  static Metrics metrics(Workshop& shop) {
    Metrics all;
    for (const std::string& split : shop.splits()) all.merge(shop.evaluate(split));
    return all;
  }

  /// One row a parameter. What is not finite is told by the exit code, too.
  void add_facts(Report& report, const std::vector<NamedTensor>& parameters,
                 const std::vector<bool>& moved) const {
    std::int64_t numbers = 0, bad = 0, still = 0;
    report.columns = {"parameter", "numbers", "not finite", "zero"};
    if (options_.steps > 0) report.columns.emplace_back("moved");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor tensor = parameters[i].tensor.detach();
      const std::int64_t infinite = tensor.numel() - at::isfinite(tensor).sum().item<std::int64_t>();
      const std::int64_t zero = tensor.numel() - at::count_nonzero(tensor).item<std::int64_t>();
      numbers += tensor.numel();
      bad += infinite;
      still += static_cast<std::int64_t>(!moved[i]);
      report.rows.push_back({parameters[i].name, tensor.numel(), infinite, zero});
      if (options_.steps > 0) report.rows.back().emplace_back(moved[i] ? "yes" : "no");
    }
    report.facts = {{"parameters", static_cast<std::int64_t>(parameters.size())},
                    {"numbers", numbers},
                    {"not finite", bad}};
    if (options_.steps > 0)
      report.facts.emplace_back("not moved in " + std::to_string(options_.steps) + " steps", still);
    if (bad > 0) report.code = ExitCode::numeric;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Audit)
