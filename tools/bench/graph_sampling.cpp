// The sampler of the dataset `graph` against one from the standard library's parts, and against 95 ways to
// make it, on three made-up graphs: fanouts 15, 10, 5 and batches of 1,024 samples, CPU time of the thread.
// All draw the same edges.
//   graph_sampling [--quick] [arxiv] [uniform] [products] [FILE.npz]
// Of a file only how fast the dataset's own samples it, nodes expanded once, as other samplers do.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include <trainyard/dataset.hpp>

#include "core/engine/train/memory.hpp"
#include "plugins/dataset/graph/node_graph.hpp"
#include "support/plugin.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/graph_variants.hpp"

namespace trainyard::bench {
namespace {

using graph::Csr;
using graph::NeighbourSampler;

/// Blocks in memory that is kept, and a sum that tells whether the edges are those of the others.
class Blocks final : public graph::HopWriter {
 public:
  std::int64_t* rowptr(std::size_t size) override { return room(rowptrs_, hop_, size); }
  std::int64_t* col(std::size_t size) override { return room(cols_, hop_++, size); }
  void edges(std::span<const std::int64_t> places) override {
    count_ += places.size();
    for (std::size_t i = 0; summed && i < places.size(); ++i)
      sum += static_cast<std::uint64_t>(places[i] + 1) * 0x9E3779B97F4A7C15 * (hop_ + 1);
  }
  void begin() { hop_ = count_ = 0; }
  std::size_t count() const { return count_; }  ///< edges since then

  bool summed = false;
  std::uint64_t sum = 0;

 private:
  using Kept = std::vector<std::vector<std::int64_t>>;
  static std::int64_t* room(Kept& kept, std::size_t hop, std::size_t size) {
    if (kept.size() <= hop) kept.resize(hop + 1);
    if (kept[hop].size() < size) kept[hop].resize(size);
    return kept[hop].data();
  }
  Kept rowptrs_, cols_;
  std::size_t hop_ = 0, count_ = 0;
};

struct Workload {
  std::string name;
  Csr csr;
  graph::Plan plan{{15, 10, 5}};
  std::int64_t batch = 1024;
  std::int64_t drawn_edges = 0;  ///< of a synthetic graph of the dataset
  double bar = 0.0;              ///< times the sampler of the standard library; 0: none

  std::vector<std::int64_t> seeds(std::uint64_t number) const {
    const RandomStream random(1, "bench/seeds", number);
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < batch; ++i)
      found.push_back(static_cast<std::int64_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(csr.nodes()))));
    return found;
  }
};

/// A way to sample: its name, and whether it begins each batch with nothing.
struct Variant {
  std::array<const char*, 5> parts;
  std::unique_ptr<NeighbourSampler> (*make)(const Csr&);
  bool fresh;

  std::string name() const {
    std::string text;
    for (const char* part : parts) text += (text.empty() ? "" : ", ") + std::string(part);
    return text;
  }
};

template <class Ids, class Set, bool one_pass, bool flat>
std::unique_ptr<NeighbourSampler> make(const Csr& csr) {
  return std::make_unique<graph::HopwiseSampler<std::int32_t, Ids, Loops<Ids, Set, one_pass, flat>>>(csr);
}

template <class Ids, class Set, bool one_pass, bool flat>
void add(std::vector<Variant>& all, const char* ids, const char* set) {
  for (const bool fresh : {false, true})
    all.push_back({{ids, set, one_pass ? "one pass" : "two passes", flat ? "block" : "vectors",
                    fresh ? "fresh" : "reused"},
                   &make<Ids, Set, one_pass, flat>,
                   fresh});
}
template <class Ids, class Set>
void add_loops(std::vector<Variant>& all, const char* ids, const char* set) {
  add<Ids, Set, false, true>(all, ids, set);
  add<Ids, Set, true, true>(all, ids, set);
  add<Ids, Set, false, false>(all, ids, set);
  add<Ids, Set, true, false>(all, ids, set);
}
template <class Ids>
void add_sets(std::vector<Variant>& all, const char* ids) {
  add_loops<Ids, graph::PickSet>(all, ids, "scan");
  add_loops<Ids, Bitmap>(all, ids, "bitmap");
  add_loops<Ids, StlSet>(all, ids, "stl set");
}

/// The one of the dataset comes first, for graphs whose map fits the budget; its second is `flat`.
std::vector<Variant> all_variants() {
  std::vector<Variant> all;
  add_sets<graph::DirectMap>(all, "direct");
  add_sets<graph::FlatMap>(all, "flat");
  add_sets<SortedMap>(all, "sort");
  add_sets<StlMap>(all, "stl map");
  return all;
}

/// Maps and sets of the standard library, a vector for each node, nothing kept from batch to batch.
bool is_baseline(const Variant& variant) {
  return variant.name() == "stl map, stl set, two passes, vectors, fresh";
}

/// A variant at work on a graph.
class Sampling {
 public:
  Sampling(const Workload& work, const Variant& variant) : work_(&work), variant_(&variant) {}

  void batch(std::uint64_t number) {
    if (!sampler_ || variant_->fresh) {
      sampler_ = variant_->make(work_->csr);
      blocks_ = std::make_unique<Blocks>();
    }
    blocks_->begin();
    const auto found = sampler_->sample(work_->seeds(number), work_->plan,
                                        {static_cast<std::uint32_t>(number), 1}, *blocks_);
    nodes = found.size();
    edges = blocks_->count();
  }
  std::size_t nodes = 0, edges = 0;  ///< of the last batch

 private:
  const Workload* work_;
  const Variant* variant_;
  std::unique_ptr<NeighbourSampler> sampler_;
  std::unique_ptr<Blocks> blocks_;
};

/// Sum over the edges of one batch, and the number of nodes in it.
std::pair<std::uint64_t, std::int64_t> drawn(const Workload& work, const Variant& variant) {
  const std::unique_ptr<NeighbourSampler> sampler = variant.make(work.csr);
  Blocks blocks;
  blocks.summed = true;
  const auto nodes = sampler->sample(work.seeds(0), work.plan, {0, 1}, blocks);
  return {blocks.sum, static_cast<std::int64_t>(nodes.size())};
}

bool same_edges(const Workload& work, const std::vector<Variant>& variants) {
  const auto expected = drawn(work, variants.front());
  bool same = true;
  for (const Variant& variant : variants)
    if (!variant.fresh && drawn(work, variant) != expected) {
      std::fprintf(stderr, "bench graph_sampling: %s draws other edges\n", variant.name().c_str());
      same = false;
    }
  return same;
}

/// Seconds of CPU time a batch, of each variant in turn.
std::vector<double> measure(const Workload& work, const std::vector<Variant>& variants, int rounds,
                            int batches) {
  std::vector<Sampling> sampling;
  for (const Variant& variant : variants) sampling.emplace_back(work, variant);
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < variants.size(); ++i)
    contenders.push_back({variants[i].name(), [&sampling, i, batches, number = std::uint64_t{0}]() mutable {
                            for (int batch = 0; batch < batches; ++batch) sampling[i].batch(number++);
                          }});
  std::vector<double> seconds;
  for (const Times& times : contest(contenders, rounds))
    seconds.push_back(percentile(times.cpu, 0.2) / batches);
  return seconds;
}

/// All of them a few times, which tells the slow from the fast; the fastest again, which tells them apart.
bool print_variants(const Workload& work, const std::vector<Variant>& variants, bool quick) {
  const std::vector<double> seconds = measure(work, variants, quick ? 1 : 3, 1);
  std::vector<std::size_t> order(variants.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return seconds[a] < seconds[b]; });
  const double best = seconds[order[0]];
  std::printf("  96 variants: ms a batch, times the best\n");
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::size_t i = order[place];
    if (place < 8 || is_baseline(variants[i]) || place + 1 == order.size())
      std::printf("  %3zu  %-46s %9.2f %7.2f\n", place + 1, variants[i].name().c_str(), 1e3 * seconds[i],
                  seconds[i] / best);
  }
  // What each choice costs: the median over the others of its time by that of the best choice.
  for (std::size_t part = 0; part < 5; ++part) {
    std::map<std::string, std::map<std::string, double>> by_rest;  // the rest's name, the choice
    for (std::size_t i = 0; i < variants.size(); ++i) {
      std::string rest;
      for (std::size_t other = 0; other < 5; ++other)
        if (other != part) rest += std::string(variants[i].parts[other]) + ",";
      by_rest[rest][variants[i].parts[part]] = seconds[i];
    }
    std::map<std::string, std::vector<double>> ratios;
    for (const auto& [rest, choices] : by_rest)
      for (const auto& [choice, time] : choices)
        ratios[choice].push_back(time / choices.at(variants[0].parts[part]));
    std::printf("       ");
    for (const auto& [choice, each] : ratios) std::printf(" %s %.2f", choice.c_str(), percentile(each, 0.5));
    std::printf("\n");
  }

  order.resize(6);
  if (std::find(order.begin(), order.end(), 0U) == order.end()) order.push_back(0);
  std::vector<Variant> fastest;
  for (const std::size_t i : order) fastest.push_back(variants[i]);
  const std::vector<double> again = measure(work, fastest, quick ? 1 : 15, quick ? 1 : 4);
  const double least = *std::min_element(again.begin(), again.end());
  double ours = 0.0;
  std::printf("  the fastest of these again\n");
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] == 0) ours = again[i];
    std::printf("       %-46s %9.2f %7.2f%s\n", fastest[i].name().c_str(), 1e3 * again[i], again[i] / least,
                order[i] == 0 ? "  <- the dataset's (bar 1.10)" : "");
  }
  return ours <= 1.1 * least;
}

/// Batches a second of the wall, of `threads` that each have a sampler.
double rate(const Workload& work, const Variant& variant, int threads, int batches) {
  const auto run = [&](int thread) {
    Sampling sampling(work, variant);
    for (int i = 0; i < batches; ++i) sampling.batch(static_cast<std::uint64_t>(thread * batches + i));
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread) running.emplace_back(run, thread);
  running.clear();
  return threads * batches / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void print_memory(const Workload& work, const Variant& variant, int batches) {
  const std::int64_t before = resident_bytes();
  Sampling sampling(work, variant);
  for (int i = 0; i < batches; ++i) sampling.batch(static_cast<std::uint64_t>(i));
  const std::int64_t early = resident_bytes();
  for (int i = 0; i < 9 * batches; ++i) sampling.batch(static_cast<std::uint64_t>(batches + i));
  std::printf(
      "  memory of a sampler and its blocks: %.1f MiB after %d batches, %.1f after %d; the map has %.1f\n",
      static_cast<double>(early - before) / (1 << 20), batches,
      static_cast<double>(resident_bytes() - before) / (1 << 20), 10 * batches,
      static_cast<double>(work.csr.nodes()) * 4 / (1 << 20));
}

/// Batches as the loader gets them: blocks in tensors, and 128 features a node in 16 bits.
void print_whole(const Workload& work, int batches) {
  const auto data =
      test::make<Dataset>("graph", test::table({{"layout", "synthetic"},
                                                {"synthetic", test::table({{"nodes", work.csr.nodes()},
                                                                           {"edges", work.drawn_edges},
                                                                           {"features", 128},
                                                                           {"classes", 2},
                                                                           {"homophily", 0.0}})},
                                                {"feature_dtype", "float16"}}));
  data->open("train");
  std::vector<double> seconds;
  double bytes = 0.0;
  for (int number = 0; number < batches; ++number) {
    const RandomStream random(1, "bench/samples", static_cast<std::uint64_t>(number));
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < work.batch; ++i)
      samples.push_back(static_cast<std::int64_t>(
          random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(data->size()))));
    const double start = thread_seconds();
    const Batch batch = data->read(samples, {random, 0});
    seconds.push_back(thread_seconds() - start);
    bytes = 0.0;
    for (const at::Tensor& input : batch.inputs) bytes += static_cast<double>(input.nbytes());
  }
  std::printf("  with 128 features in 16 bits: %.2f batches/s of %.0f MB\n", 1 / percentile(seconds, 0.2),
              1e-6 * bytes);
}

bool bench(const Workload& work, bool quick) {
  const std::vector<Variant> variants = all_variants();
  std::printf("%s: %lld nodes, %lld edges\n", work.name.c_str(), static_cast<long long>(work.csr.nodes()),
              static_cast<long long>(work.csr.edges()));
  bool good = same_edges(work, variants);
  std::vector<Variant> rivals;
  for (const Variant& variant : variants)
    if (is_baseline(variant) || variant.name().ends_with("scan, two passes, block, reused"))
      rivals.push_back(variant);
  std::rotate(rivals.begin(), rivals.end() - 1, rivals.end());  // the baseline first
  Sampling one(work, variants.front());
  one.batch(0);
  const auto edges = static_cast<double>(one.edges);
  const std::vector<double> seconds = measure(work, rivals, quick ? 1 : 7, quick ? 1 : 3);
  std::printf("  a batch has %.0f nodes, %.0f edges\n  %-46s %9s %9s %9s\n", static_cast<double>(one.nodes),
              edges, "", "batches/s", "M edges/s", "times");
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    const bool ours = rivals[i].name() == variants.front().name();
    std::printf("  %-46s %9.2f %9.2f %9.2f", rivals[i].name().c_str(), 1 / seconds[i],
                1e-6 * edges / seconds[i], seconds[0] / seconds[i]);
    if (ours && work.bar > 0) std::printf("  <- the dataset's (bar %.0f)", work.bar);
    std::printf("\n");
  }
  if (!print_variants(work, variants, quick))
    std::printf("  the dataset's is not within 10 %% of the best\n");
  const int batches = quick ? 1 : std::max(4, static_cast<int>(1.5 / seconds[1]));
  rate(work, variants.front(), 2, 1);
  const double alone = rate(work, variants.front(), 1, batches),
               two = rate(work, variants.front(), 2, batches);
  std::printf("  threads: 1 gives %.2f batches/s, 2 give %.2f: %.2f times (bar 1.7)\n", alone, two,
              two / alone);
  print_memory(work, variants.front(), quick ? 1 : 20);
  if (work.drawn_edges > 0) print_whole(work, quick ? 1 : 20);
  std::fflush(stdout);
  return good;
}

Workload made(const char* name, std::int64_t nodes, std::int64_t edges, double bar, bool quick) {
  graph::Source source{.layout = "synthetic"};
  source.synthetic = {.nodes = quick ? nodes / 100 : nodes,
                      .edges = quick ? edges / 100 : edges,
                      .features = 1,
                      .classes = 2,
                      .homophily = 0.0};
  return {.name = name,
          .csr = graph::make_synthetic(source).csr,
          .batch = quick ? 64 : 1024,
          .drawn_edges = source.synthetic.edges,
          .bar = bar};
}

/// Every node has about as many neighbours, which are drawn uniformly: no hub stays in a cache.
Workload uniform(bool quick) {
  const std::int64_t nodes = quick ? 10'000 : 1'000'000;
  const RandomStream random(1, "bench/uniform");
  Csr csr = graph::make_csr(nodes, {}, [&](const auto& visit) {
    for (std::int64_t edge = 0; edge < 10 * nodes; ++edge)
      visit(edge % nodes, static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(edge),
                                                                 static_cast<std::uint64_t>(nodes))));
  });
  return {.name = "uniform", .csr = std::move(csr), .batch = quick ? 64 : 1024};
}

void bench_file(const std::string& path, bool quick) {
  const Workload work{
      .name = path,
      .csr = graph::open_graph({.layout = "npz", .path = path, .edges = {.undirected = false}})->csr,
      .plan = {{15, 10, 5}, graph::Mode::subgraph},
      .batch = quick ? 64 : 1024};
  for (const Variant& variant : all_variants()) {
    if (!variant.name().ends_with("scan, two passes, block, reused")) continue;
    if (!variant.name().starts_with("direct") && !variant.name().starts_with("flat")) continue;
    Sampling sampling(work, variant);
    std::vector<double> seconds;
    double nodes = 0.0, edges = 0.0;
    const int batches = quick ? 3 : 60;
    for (int i = 0; i < batches; ++i) {
      const double start = thread_seconds();
      sampling.batch(static_cast<std::uint64_t>(i));
      seconds.push_back(thread_seconds() - start);
      nodes += static_cast<double>(sampling.nodes) / batches;
      edges += static_cast<double>(sampling.edges) / batches;
    }
    const double one = percentile(seconds, 0.2);
    std::printf("  here, %s: %.2f batches/s, a batch has %.0f nodes, %.0f edges (%.1f M edges/s)\n",
                variant.parts.front(), 1 / one, nodes, edges, 1e-6 * edges / one);
  }
}

int run(std::vector<std::string> names, bool quick) {
  if (names.empty()) names = {"arxiv", "uniform", "products"};
  bool good = true;
  for (const std::string& name : names) {
    if (name.ends_with(".npz")) bench_file(name, quick);
    if (name == "arxiv") good &= bench(made("arXiv-like", 169'343, 1'166'243, 4.0, quick), quick);
    if (name == "products") good &= bench(made("products-like", 2'449'029, 61'859'140, 5.0, quick), quick);
    if (name == "uniform") good &= bench(uniform(quick), quick);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  trainyard::train::keep_large_blocks();  // as the host does; those that begin anew gain most
  std::vector<std::string> names(argv + 1, argv + argc);
  const bool quick = std::erase(names, "--quick") > 0;
  return trainyard::bench::run(names, quick);
}
