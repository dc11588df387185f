#include <trainyard/tool.hpp>

/// The norm of every tensor of saved weights, and which are larger than asked.
class MyPlugin final : public trainyard::Tool {
 public:
  struct Options {
    double limit = 1e6;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Lists the norms of saved weights.");
    m.option("limit", &Options::limit, "largest norm that is in order").min(0.0);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  trainyard::Report run(trainyard::Workshop& workshop) override {
    trainyard::Report report;
    report.facts.emplace_back("weights", workshop.source());
    report.columns = {"tensor", "numbers", "norm"};
    for (const trainyard::NamedTensor& each : workshop.weights()) {
      const double norm = each.tensor.detach().to(at::kDouble).norm().item<double>();
      report.rows.push_back({each.name, each.tensor.numel(), norm});
      if (!(norm <= options_.limit)) report.code = trainyard::ExitCode::numeric;
    }
    return report;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
