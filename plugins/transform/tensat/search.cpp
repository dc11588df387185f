#include "search.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <trainyard/graph/network.hpp>
#include <trainyard/random.hpp>

#include "lib/printed.hpp"
#include "network_rules.hpp"
#include "stopwatch.hpp"

namespace tensat {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::lib::printed;

namespace {

/// Nodes of a graph that another has not by name.
std::vector<std::string> gone(const Graph& graph, const Graph& other) {
  std::set<std::string> names;
  for (const trainyard::Node& node : other.nodes) names.insert(node.name);
  std::vector<std::string> made;
  for (const trainyard::Node& node : graph.nodes)
    if (!names.contains(node.name)) made.push_back(node.name);
  return made;
}

/// Sums of single precision in another order differ by so much at most.
constexpr double tolerance = 1e-4;

}  // namespace

double difference(const Graph& a, const Graph& b, std::int64_t samples, std::uint64_t seed, bool doubles) {
  const c10::NoGradGuard guard;
  const auto of = [&](const Graph& graph) {
    Graph copy = graph;
    for (GraphValue& value : copy.values)
      if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
    trainyard::GraphNetwork network(std::move(copy));
    if (doubles) network.to_doubles();
    std::vector<at::Tensor> inputs;
    for (const trainyard::ValueId id : graph.inputs) {
      const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
      std::vector<std::int64_t> shape = value.shape;
      for (std::int64_t& size : shape)
        if (size < 0) size *= -samples;
      at::Tensor input = at::zeros(shape, at::TensorOptions(value.dtype));
      if (value.dtype == at::kFloat)
        trainyard::fill_normal(input, trainyard::RandomStream(seed, value.name), 0.0, 1.0);
      inputs.push_back(doubles && value.dtype == at::kFloat ? input.to(at::kDouble) : input);
    }
    return network.forward_all(inputs, {.training = false, .part = {}});
  };
  const std::vector<at::Tensor> left = of(a), right = of(b);
  if (left.size() != right.size()) return 1.0;
  double most = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].sizes() != right[i].sizes() || left[i].numel() == 0) return 1.0;
    if (!left[i].is_floating_point()) continue;
    const double largest = std::max(left[i].abs().max().item<double>(), 1e-30);
    const double apart = (left[i] - right[i]).abs().max().item<double>() / largest;
    most = std::max(most, apart == apart ? apart : 1.0);
  }
  return most;
}

namespace {

/// One thread while the solver is at work: it computes in a copy of the process, which has none of the threads that LibTorch's OpenMP has made,
/// and would wait for them.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

Extraction extracted(const Extractable& extractable, const Search& search) {
  const OneThread alone;
  return extract(extractable.problem, search.extractor, {.order = Order::none, .seconds = search.ilp_seconds},
                 &extractable.input);
}

/// Rewrites by some rules, prices what there is, and chooses. What was found before stays where it costs less.
void explore(const Graph& graph, const Way& way, const Search& search, PriceTable& table, bool all,
             const std::function<bool()>& stop, Found& found, std::optional<Program>& best) {
  auto begin = Clock::now();
  Terms terms(graph);
  found.opaque = terms.opaque().size();
  if (search.k_multi > 0) found.groups = merge_groups(terms);
  const std::vector<Rule> rules =
      all ? all_rules(terms.egraph(), terms.shapes()) : merging_rules(terms.egraph(), terms.shapes());
  Limits limits{.nodes = static_cast<std::size_t>(search.max_nodes),
                .iterations = static_cast<int>(search.max_iterations),
                .seconds = search.seconds,
                .multi_iterations = static_cast<int>(search.k_multi),
                .resting = 1000,
                .reached = {}};
  if (stop) limits.reached = [&](const EGraph&) { return stop(); };
  const Saturation saturation = saturate(terms.egraph(), rules, terms.roots(), limits, search.cycles);
  ban_cuts_of_batches(terms);
  found.explored += seconds_since(begin);

  begin = Clock::now();
  Prices prices(graph, terms, way, table,
                [&] { return seconds_since(begin) > search.seconds || (stop && stop()); });
  const std::vector<double> costs = prices.all();
  found.priced += prices.measured();
  found.measuring += seconds_since(begin);

  begin = Clock::now();
  const Extractable extractable = problem_of(terms.egraph(), terms.roots(), costs);
  const Extraction extraction = extracted(extractable, search);
  found.extracted += seconds_since(begin);
  const bool better = !best || extraction.best.cost < found.predicted_after;
  if (!better) return;
  best = terms.program(extractable, extraction.best);
  found.nodes = terms.egraph().node_count();
  found.classes = terms.egraph().class_count();
  found.iterations = static_cast<int>(saturation.iterations.size());
  found.stop = text_of(saturation.stop);
  found.log2_programs = log2_programs(extractable.problem);
  found.from = extraction.from;
  found.solver = text_of(extraction.solver.status);
  found.gap = extraction.solver.gap;
  found.rules = rules.size();
  found.predicted_before = extraction.input.value_or(extraction.best.cost);
  found.predicted_after = extraction.best.cost;
  found.greedy = extraction.greedy_dag.value_or(extraction.greedy.value_or(0.0));
}

}  // namespace

Found find_cheaper(const Graph& graph, const Way& way, const Search& search, PriceTable& table,
                   const std::function<bool()>& stop) {
  Found found;
  std::optional<Program> best;
  // Few rules first: the solver gets through all that they make. With all it may come to nothing in its time.
  for (const bool all : {false, true}) explore(graph, way, search, table, all, stop, found, best);
  if (found.predicted_after > (1.0 - search.min_gain) * found.predicted_before) {
    found.reason = printed(
        "nothing is won: the cheapest graph that was found has %.1f%% of the input's cost, as the sum of its "
        "operators",
        100.0 * found.predicted_after / std::max(found.predicted_before, 1e-30));
    return found;
  }
  judge(graph, *std::move(best), way, search, found, stop);
  return found;
}

void judge(const Graph& graph, Program program, const Way& way, const Search& search, Found& found,
           const std::function<bool()>& stop) {
  const Graph chosen = graph_of(graph, program);
  for (const std::int64_t samples : {way.samples, way.samples + 1})
    if (const double apart = difference(graph, chosen, samples, 7, false); !(apart <= tolerance)) {
      found.reason = printed(
          "the graph that was found gives other numbers, by %.1e of the largest: this is a mistake of a "
          "rule, please report it",
          apart);
      return;
    }
  found.merged = gone(graph, chosen);
  // What the weights alone decide is computed once where they stay.
  const auto now = make_pass(way.training ? graph : folded(graph), way),
             then = make_pass(way.training ? chosen : folded(chosen), way);
  const Compared times = compared(*now, *then, 11, 5e-3, stop);
  found.before = times.first;
  found.after = times.second;
  const double needed = 1.0 - search.min_gain;
  const bool faster = times.second <= needed * times.first && times.ratio <= needed;
  const std::string figures = printed("%.1f us of %.1f us a pass (%.2fx; predicted %.2fx)", 1e6 * found.after,
                                      1e6 * found.before, found.gain(), found.predicted_gain());
  if (!faster || (stop && stop())) {
    found.reason = "the graph that was found is not faster as a whole: " + figures;
    return;
  }
  found.taken = true;
  found.reason = "faster as a whole: " + figures;
  found.program = std::move(program);
  found.hash = hash_of(chosen);
}

}  // namespace tensat
