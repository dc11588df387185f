// Says what equality saturation makes of a run's network on this machine, and writes the choice, which the transform of the same name takes.
#include <cstdio>
#include <optional>

#include <ATen/Parallel.h>

#include <trainyard/error.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "../../transform/tensat/run_facts.hpp"
#include "../../transform/tensat/saved_plan.hpp"
#include "../../transform/tensat/search_options.hpp"

namespace {

using namespace trainyard;
using namespace tensat;

class TensatTool final : public Tool {
 public:
  struct Options : SearchOptions {
    std::int64_t samples = 0;
    bool measure_again = false;
    std::string out;
  };
  static void describe(Manifest<Options>& m) {
    m.name("tensat").version("1.0.0").summary(
        "Looks for a cheaper graph of the network by equality saturation, and times it.");
    m.needs("graph");
    describe_search(m);
    m.option("use", &Options::use,
             "what passes are timed: forward and backward, or forward alone, with what weights decide "
             "computed once");
    m.option("samples", &Options::samples, "of a pass; 0: of the run's micro-batch").min(0);
    m.option("measure_again", &Options::measure_again,
             "leaves prices that are known from earlier searches, and takes them anew");
    m.option("out", &Options::out,
             "file to write the choice to; empty: plan.json in the tool's folder below the run");
  }
  explicit TensatTool(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    tensat::RunFacts facts = facts_of(shop.config(), options_.use == Use::training);
    if (!facts.obstacle.empty()) throw ConfigError(facts.obstacle);
    if (options_.samples > 0) facts.way.samples = options_.samples;
    const Graph& graph = *shop.network().graph();
    const Search search = search_of(options_);
    SavedPlan plan{key_of(graph, facts.way, search), {}};
    std::string kept = shared_folder();
    {
      std::optional<Shared> shared;
      try {
        shared.emplace(kept);
      } catch (const DataError& error) {
        kept = std::string("nowhere: ") + error.what();
        host().log(LogLevel::warning, error.what());
      }
      PriceTable prices;
      if (shared && !options_.measure_again) prices = shared->prices(plan.key.threads);
      plan.found = find_cheaper(graph, facts.way, search, prices, [&] { return shop.stopping(); });
      if (shop.stopping()) return {};
      if (shared) shared->keep(prices, plan.key.threads);
    }
    const std::string path = options_.out.empty() ? shop.folder() + "/plan.json" : options_.out;
    write_file(path, text_of(plan));
    Report made = report(plan, graph, facts.way, path);
    made.facts.emplace_back("prices kept in", kept);
    return made;
  }

 private:
  static Report report(const SavedPlan& plan, const Graph& graph, const Way& way, const std::string& path) {
    const Found& f = plan.found;
    Array merged;
    for (const std::string& each : f.merged) merged.emplace_back(each);
    Report report;
    report.facts = {{"taken", f.taken},
                    {"reason", f.reason},
                    {"plan", path},
                    {"machine", plan.key.machine},
                    {"threads", plan.key.threads},
                    {"computed as", way.text()},
                    {"samples", way.samples},
                    {"graph", plan.key.graph},
                    {"chosen graph", f.hash},
                    {"rules", plan.key.rules},
                    {"rules of this graph", static_cast<std::int64_t>(f.rules)},
                    {"nodes of the graph", static_cast<std::int64_t>(graph.nodes.size())},
                    {"nodes that no rule knows", static_cast<std::int64_t>(f.opaque)},
                    {"products of one input, groups", static_cast<std::int64_t>(f.groups)},
                    {"e-nodes", static_cast<std::int64_t>(f.nodes)},
                    {"e-classes", static_cast<std::int64_t>(f.classes)},
                    {"log2 of programs", f.log2_programs},
                    {"iterations", static_cast<std::int64_t>(f.iterations)},
                    {"ended by", f.stop},
                    {"explored, s", f.explored},
                    {"prices measured", static_cast<std::int64_t>(f.priced)},
                    {"measured, s", f.measuring},
                    {"extracted, s", f.extracted},
                    {"extraction of", f.from},
                    {"solver", f.solver},
                    {"gap of the solver", f.gap},
                    {"merged", merged}};
    report.columns = {"graph", "predicted us", "measured us", "gain predicted", "gain measured"};
    report.rows = {{"input", 1e6 * f.predicted_before, 1e6 * f.before, 1.0, 1.0},
                   {f.taken ? "chosen" : "cheapest found", 1e6 * f.predicted_after, 1e6 * f.after,
                    f.predicted_gain(), f.gain()}};
    return report;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(TensatTool)
