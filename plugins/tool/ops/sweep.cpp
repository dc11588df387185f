#include "sweep.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <trainyard/error.hpp>

#include "runnable.hpp"

namespace ops {
namespace {

using trainyard::RandomStream;

constexpr std::int64_t most_channels = 160;

template <class Change>
Sweep over(std::string name, std::string dimension, const Operator& base,
           const std::vector<std::int64_t>& values, Change change) {
  Sweep sweep{std::move(name), std::move(dimension), {}, {}};
  for (const std::int64_t value : values) {
    Operator point = base;
    change(point, value);
    sweep.points.push_back(point);
  }
  return sweep;
}

std::vector<std::int64_t> all_to(std::int64_t last, std::int64_t first = 1) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = first; i <= last; ++i) values.push_back(i);
  return values;
}

Operator depthwise(Operator point) {
  point.groups = point.out = point.in;
  return point;
}

/// Formats of the base convolution, of a depthwise one and of a linear layer, of LibTorch and of oneDNN itself.
Sweep formats() {
  const Operator dense, point_wise{.kernel = 1};
  const Operator linear{.op = "linear", .batch = 256, .size = 1, .in = 512, .out = 512, .kernel = 1};
  Sweep sweep{"type", "", {}, {}};
  for (const Operator& base : {dense, point_wise, depthwise(dense), linear})
    for (const char* library : {"libtorch", "onednn"})
      for (const char* type : {"fp32", "bf16", "int8"}) {
        if (std::string(library) == "libtorch" && std::string(type) == "int8") continue;
        Operator point = base;
        point.type = type;
        point.library = library;
        sweep.points.push_back(point);
      }
  return sweep;
}

Sweep block_sweep(std::int64_t threads) {
  Sweep sweep{"block", "", {}, {}};
  for (const char* phase : {"forward", "training"})
    for (const std::int64_t count : std::set<std::int64_t>{1, threads}) {
      std::vector<Operator> points = {Operator{}, Operator{.groups = 4}, Operator{.kernel = 1},
                                      depthwise({})};
      for (const std::string& name : blocks()) points.push_back({.op = name});
      for (Operator& point : points) {
        point.phase = phase;
        point.threads = count;
        sweep.points.push_back(point);
      }
    }
  return sweep;
}

Sweep activation_sweep() {
  Sweep sweep{"activation", "", {}, {}};
  for (const std::string& name : activations()) sweep.points.push_back({.op = name, .in = 256});
  return sweep;
}

}  // namespace

std::vector<Sweep> dimension_sweeps(std::int64_t threads, bool flushes) {
  const Operator base, training{.phase = "training"};
  const Operator linear{.op = "linear", .batch = 32, .size = 1, .in = 256, .kernel = 1};
  const auto set_out = [](Operator& p, std::int64_t x) { p.out = x; };
  const auto set_in = [](Operator& p, std::int64_t x) { p.in = x; };
  const auto set_size = [](Operator& p, std::int64_t x) { p.size = x; };
  const auto set_kernel = [](Operator& p, std::int64_t x) { p.kernel = x; };
  const auto set_stride = [](Operator& p, std::int64_t x) { p.stride = x; };
  const auto set_batch = [](Operator& p, std::int64_t x) { p.batch = x; };
  const std::vector<std::int64_t> powers = {256, 512}, kernels = {1, 3, 5, 7, 9}, strides = {1, 2, 4},
                                  batches = {1, 2, 4, 8, 16};

  std::vector<Sweep> sweeps;
  sweeps.push_back(over("cout", "cout", base, all_to(most_channels), set_out));
  sweeps.push_back(over("cin", "cin", base, all_to(most_channels), set_in));
  sweeps.push_back(over("size", "size", base, all_to(57), set_size));
  sweeps.push_back(over("cin_onednn", "cin", {.library = "onednn"}, all_to(64), set_in));
  sweeps.push_back(over("size_onednn", "size", {.library = "onednn"}, all_to(40), set_size));
  sweeps.push_back(over("cout_training", "cout", training, all_to(most_channels), set_out));
  sweeps.push_back(over("cout_bf16", "cout", {.type = "bf16"}, all_to(most_channels), set_out));
  sweeps.push_back(
      over("cout_int8", "cout", {.type = "int8", .library = "onednn"}, all_to(most_channels), set_out));
  sweeps.push_back(over("linear_cout", "cout", linear, all_to(most_channels), set_out));
  sweeps.push_back(over("wide", "cout", base, powers, set_out));
  sweeps.push_back(over("large", "size", base, {112, 224}, set_size));
  sweeps.push_back(over("kernel", "kernel", base, kernels, set_kernel));
  sweeps.push_back(over("kernel_depthwise", "kernel", depthwise(base), kernels, set_kernel));
  sweeps.push_back(over("stride", "", {.size = 56}, strides, set_stride));
  sweeps.push_back(over("batch", "batch", base, batches, set_batch));
  sweeps.push_back(block_sweep(threads));
  sweeps.push_back(activation_sweep());
  sweeps.push_back(formats());
  for (Sweep& sweep : sweeps) sweep.conditions.flushes = flushes;
  // What a large tensor costs with pages that are kept, and with pages that are given back.
  for (const bool keeps : {true, false}) {
    Sweep pages{
        keeps ? "pages_kept" : "pages_given_back", "", {}, {.keeps_pages = keeps, .flushes = flushes}};
    pages.points = {{.size = 56}, {.size = 112}, {}, {.batch = 8}};
    sweeps.push_back(pages);
  }
  return sweeps;
}

const std::vector<Operator>& sentinels() {
  static const std::vector<Operator> points = {
      {},
      {.kernel = 1},
      {.groups = 64},
      {.op = "relu", .in = 256},
      {.op = "linear", .batch = 32, .size = 1, .in = 256, .out = 128, .kernel = 1}};
  return points;
}

Operator drawn(const std::string& op, const RandomStream& random, std::uint64_t number) {
  std::uint64_t index = number * 16;
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + random.below(index++, values.size()));
  };
  const auto channels = [&](double low, double high) {
    return static_cast<std::int64_t>(std::lround(low * std::pow(high / low, random.uniform(index++))));
  };
  Operator point{.op = op == "depthwise" ? "conv" : op};
  point.size = pick({1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 16, 20, 24, 27, 28, 32, 40, 48, 56});
  point.in = channels(4.0, 256.0);
  point.out = channels(4.0, 256.0);
  point.kernel = 1;
  if (op == "conv") {
    point.kernel = pick({1, 3, 5, 7});
    point.stride = pick({1, 2});
  } else if (op == "depthwise") {
    point.kernel = pick({3, 5, 7});
    point.stride = pick({1, 2});
    point = depthwise(point);
  } else if (op == "linear") {
    point.size = 1;
    point.in = channels(4.0, 4096.0);
    point.out = channels(4.0, 1024.0);
  } else {
    point.out = point.in;
    if (op == "max_pool" || op == "average_pool") {
      point.kernel = pick({2, 3});
      point.stride = 2;
      point.size = std::max<std::int64_t>(point.size, 4);
    }
  }
  return point;
}

Operator near(const Operator& point, const RandomStream& random, std::uint64_t number) {
  Operator other = point;
  const auto scaled = [&](std::int64_t channels, std::uint64_t index) {
    return std::max<std::int64_t>(
        1, std::lround(static_cast<double>(channels) * (0.5 + 0.7 * random.uniform(index))));
  };
  other.in = scaled(point.in, 2 * number);
  other.out = point.depthwise() ? other.in : scaled(point.out, 2 * number + 1);
  if (point.depthwise()) other.groups = other.in;
  return other;
}

std::int64_t value_of(const Operator& point, const std::string& dimension) {
  if (dimension == "cout") return point.out;
  if (dimension == "cin") return point.in;
  if (dimension == "size") return point.size;
  if (dimension == "kernel") return point.kernel;
  return point.batch;
}

Curve curve_of(const Database& database, const Sweep& sweep) {
  Curve curve;
  if (sweep.dimension.empty()) return curve;
  for (const Row* row : database.of_sweep(sweep.name))
    curve.push_back({value_of(row->point, sweep.dimension), row->timing.least});
  std::sort(curve.begin(), curve.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return curve;
}

Quality measure(Database& database, const Sweep& sweep, const Rounds& rounds, bool again,
                const RandomStream& random, const std::function<bool()>& stop,
                const std::function<void(const std::string&)>& without) {
  keep_pages(sweep.conditions.keeps_pages);
  std::map<std::int64_t, std::vector<Operator>> by_threads;
  for (const Operator& point : sweep.points)
    if (again || database.find(sweep.name, point, sweep.conditions) == nullptr)
      by_threads[point.threads].push_back(point);
  Quality quality{.whole = true};
  for (auto& [threads, points] : by_threads) {
    const Threads pools(threads);
    if (threads == 1) points.insert(points.end(), sentinels().begin(), sentinels().end());
    std::vector<Runnable> runnable;
    std::vector<Operator> made;
    for (const Operator& point : points) try {
        runnable.push_back(prepare(point));
        made.push_back(point);
      } catch (const trainyard::ConfigError& error) {
        without(error.what());
      }
    std::vector<std::function<void()>> calls;
    for (const Runnable& each : runnable) calls.push_back(each.call);
    Rounds how = rounds;
    if (sweep.conditions.flushes) how.before_call = flush_caches;
    const std::vector<Timing> timings = time_calls(calls, how, process_clock(), random, stop);
    if (timings.empty() && !calls.empty()) return {};
    quality.noisy = quality.noisy || noisy(timings);
    const std::size_t own = made.size() - (threads == 1 ? sentinels().size() : 0);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const bool is_sentinel = i >= own;
      if (threads == 1 && timings[i].least >= 20e-6)
        quality.share = std::max(quality.share, timings[i].share);
      Row row{is_sentinel ? "sentinel" : sweep.name,
              made[i],
              sweep.conditions,
              timings[i],
              rounds.rounds,
              runnable[i].work};
      if (is_sentinel) {
        const Row* first = database.find("sentinel", made[i], sweep.conditions);
        if (first != nullptr) {
          quality.moved = std::max(quality.moved, std::abs(timings[i].least / first->timing.least - 1.0));
          continue;
        }
      }
      database.add(std::move(row));
    }
  }
  keep_pages(true);
  return quality;
}

}  // namespace ops
