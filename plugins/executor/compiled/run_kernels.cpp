#include "run_kernels.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string_view>

#include "kernel_trial.hpp"
#include "lib/printed.hpp"

namespace compiled {

using trainyard::Graph;
using trainyard::LogLevel;
using trainyard::Node;
using trainyard::ValueId;
using trainyard::lib::printed;

namespace {

/// Nodes of one shape, for which there is something to choose.
struct Question {
  std::string key;  ///< shape_key
  std::size_t node = 0;
  int count = 0;          ///< nodes
  bool has_data = false;  ///< a gradient of the first input
};

/// What a trial is of.
struct Setting {
  std::int64_t samples;
  bool halves, winograd;  ///< ways beside oneDNN's of floats

  std::vector<Way> ways() const {
    std::vector<Way> made = {Way::direct};
    if (winograd) made.push_back(Way::winograd);
    if (halves) made.push_back(Way::halves);
    return made;
  }
  std::string key(const Question& question) const {
    std::string text = std::to_string(samples) + " samples";
    if (winograd) text += ", winograd";
    if (halves) text += ", bfloat16";
    return text + (question.has_data ? ": " : ", without data: ") + question.key;
  }
};

bool may_take_fewer(const Graph& graph, const Node& node) {
  const std::vector<std::int64_t>& weight = graph.values[static_cast<std::size_t>(node.inputs[1])].shape;
  return node.op == "Conv" && weight.size() == 4 && weight[2] == weight[3] &&
         (weight[2] == 3 || weight[2] == 5) && node.integers("strides", {1, 1}) == Dims{1, 1};
}

constexpr std::array<std::string_view, 7> products = {"Conv", "Gemm", "MatMul", "Attention",
                                                      "LSTM", "GRU",  "RNN"};

double products_of(const Graph& graph, const Node& node) {
  return static_cast<double>(cost(graph, node).multiply_adds);
}

/// The costliest first, as time to measure may run out.
std::vector<Question> questions_of(const Graph& graph, const Setting& setting) {
  std::vector<Question> questions;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (std::find(products.begin(), products.end(), node.op) == products.end()) continue;
    if (!setting.halves && !(setting.winograd && may_take_fewer(graph, node))) continue;
    const bool has_data =
        std::find(graph.inputs.begin(), graph.inputs.end(), node.inputs[0]) == graph.inputs.end();
    const std::string key = shape_key(graph, node);
    const auto known = std::find_if(questions.begin(), questions.end(),
                                    [&](const Question& each) { return each.key == key; });
    if (known == questions.end()) {
      questions.push_back({key, i, 1, has_data});
      continue;
    }
    ++known->count;
    known->has_data = known->has_data || has_data;
  }
  const auto all = [&](const Question& each) {
    return each.count * products_of(graph, graph.nodes[each.node]);
  };
  std::stable_sort(questions.begin(), questions.end(),
                   [&](const Question& a, const Question& b) { return all(a) > all(b); });
  return questions;
}

/// The faster ones of floats, and what bfloat16 takes: of a node, in all directions that were measured.
std::pair<double, double> seconds_of(const KernelTimes& times) {
  double floats = 0.0, halves = 0.0;
  for (const Direction each : {Direction::forward, Direction::weights, Direction::data}) {
    const double best = std::min(times.of(Way::winograd, each), times.of(Way::direct, each));
    if (!std::isfinite(best) || !std::isfinite(times.of(Way::halves, each))) continue;
    floats += best;
    halves += times.of(Way::halves, each);
  }
  return {floats, halves};
}

std::string described(const Question& question, const KernelTimes& times) {
  constexpr const char* names[directions] = {"forward", "back", "of data"};
  constexpr const char* way_names[ways] = {"fewer products", "single precision", "bfloat16"};
  std::string text = printed("%d x %s:", question.count, question.key.c_str());
  bool any = false;
  for (std::size_t d = 0; d < directions; ++d) {
    std::string row;
    for (std::size_t way = 0; way < ways; ++way)
      if (std::isfinite(times.seconds[way][d]))
        row += printed("%s%s %.3g ms", row.empty() ? " " : ", ", way_names[way], 1e3 * times.seconds[way][d]);
    if (row.empty()) continue;
    text += (any ? "; " : " ") + std::string(names[d]) + row;
    any = true;
  }
  if (!any) return text + " counts decide";
  return times.is_rough ? text + " (beside other programs)" : text;
}

/// What was found of the questions, and whether floats are faster than bfloat16 by it.
struct Sums {
  double floats = 0.0, halves = 0.0, margin = KernelTimes().margin();
  double products = 0.0, known_products = 0.0;

  /// Not by the smaller part of what is to be computed.
  bool prefers_floats() const { return floats < (1.0 - margin) * halves && known_products > 0.5 * products; }
  std::string text() const {
    if (halves == 0.0) return "";
    return printed("; products take %.3g ms a step in single precision, %.3g with bfloat16: ", 1e3 * floats,
                   1e3 * halves) +
           (prefers_floats() ? "the run computes in single precision" : "bfloat16 is taken");
  }
};

Sums sums_of(const Graph& graph, const std::vector<Question>& questions, const KernelTable& times) {
  Sums sums;
  for (const Question& each : questions) {
    const double its = each.count * products_of(graph, graph.nodes[each.node]);
    sums.products += its;
    const auto found = times.find(each.key);
    if (found == times.end()) continue;
    const auto [floats, halves] = seconds_of(found->second);
    if (halves > 0.0) sums.known_products += its;
    sums.floats += each.count * floats;
    sums.halves += each.count * halves;
    sums.margin = std::max(sums.margin, found->second.margin());
  }
  return sums;
}

std::int64_t samples_in(const Graph& graph, const PlanKey& key) {
  for (std::size_t i = 0; i < key.inputs.size(); ++i) {
    const std::vector<std::int64_t>& expected = graph.values[static_cast<std::size_t>(graph.inputs[i])].shape;
    for (std::size_t d = 0; d < expected.size(); ++d)
      if (expected[d] < 0) return key.inputs[i][d] / -expected[d];
  }
  return 1;
}

}  // namespace

void RunKernels::decide(const Graph& graph, const PlanKey& key, bool winograd, trainyard::Host& host) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const Setting setting{samples_in(graph, key), key.precision == at::kBFloat16, winograd};
  const std::vector<Question> questions = questions_of(graph, setting);
  threads_ = key.threads;
  has_halves_ = true;
  times_ = std::make_shared<KernelTable>();
  if (questions.empty()) return;
  const KernelFile file(key.threads);
  KernelTable known = file.read().value_or(KernelTable()), fresh;
  constexpr double most_seconds = 2.0;
  std::size_t disturbed = 0, late = 0;
  for (const Question& each : questions) {
    if (known.contains(setting.key(each))) continue;
    KernelTimes& times = fresh[setting.key(each)];
    if (seconds() > most_seconds) {
      ++late;
      continue;
    }
    times = tried(graph, graph.nodes[each.node], setting.samples, setting.ways(), each.has_data, key.threads);
    if (times.is_rough) ++disturbed;
  }
  std::string why = printed("kernels for %zu shapes, of times in ", questions.size()) + file.path();
  if (!fresh.empty()) {
    why += printed(", %zu of them measured now, in %.1f s", fresh.size() - late, seconds());
    if (disturbed > 0)
      why += printed(
          "; for %zu counts decide where times are closer than 25 %%, as other programs had the cores",
          disturbed);
    if (late > 0) why += printed("; for %zu counts decide, as the %.0f s were over", late, most_seconds);
    const auto kept = file.keep(fresh);
    if (!kept) {
      host.log(LogLevel::warning, file.path() +
                                      " cannot be written, so that the next run could not go the way of this "
                                      "one: counts of operations choose kernels");
      return;
    }
    known = *kept;
  }
  KernelTable table;
  for (const Question& each : questions) {
    const KernelTimes& times = known.at(setting.key(each));
    table.insert_or_assign(each.key, times);
    host.log(LogLevel::info, described(each, times));
  }
  const Sums sums = sums_of(graph, questions, table);
  has_halves_ = !sums.prefers_floats();
  times_ = std::make_shared<KernelTable>(std::move(table));
  host.log(LogLevel::info, why + sums.text());
  host.journal("kernels chosen", why + sums.text());
}

std::string RunKernels::foreseen(const Graph& graph, std::int64_t samples, int threads, bool halves,
                                 bool winograd) {
  const Setting setting{samples, halves, winograd};
  const std::vector<Question> questions = questions_of(graph, setting);
  if (questions.empty()) return "";
  const KernelFile file(threads);
  const KernelTable known = file.read().value_or(KernelTable());
  KernelTable table;
  std::string text;
  for (const Question& each : questions) {
    const auto found = known.find(setting.key(each));
    if (found == known.end()) continue;
    table.insert_or_assign(each.key, found->second);
    text += "\n    " + described(each, found->second);
  }
  std::string head =
      printed("times of %zu of %zu shapes are in ", table.size(), questions.size()) + file.path();
  if (table.size() < questions.size()) return head + ": the first step measures the rest" + text;
  return head + sums_of(graph, questions, table).text() + text;
}

void RunKernels::save(trainyard::StateWriter& state) const {
  if (!is_decided()) return;
  state.scalar("kernels", text_of(*times_));
  state.scalar("kernel_threads", std::int64_t{threads_});
  state.scalar("has_halves", has_halves_);
}

void RunKernels::load(const trainyard::StateReader& state) {
  times_.reset();
  has_halves_ = true;
  if (!state.has_scalar("kernels")) return;
  auto table = read_table(state.text("kernels"));
  if (!table) return;
  times_ = std::make_shared<KernelTable>(*std::move(table));
  threads_ = static_cast<int>(state.integer("kernel_threads"));
  has_halves_ = state.boolean("has_halves");
}

}  // namespace compiled
