// The sampler of neighbourhoods, against values that were worked out by hand or by enumeration.
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/special_gammainc.h>
#include <catch2/catch.hpp>

#include "plugins/dataset/graph/neighbours.hpp"

namespace graph_sampling_tests {

using namespace graph;

namespace {

using Numbers = std::vector<std::int64_t>;

/// A batch as it was written, hop by hop.
struct Sampled : HopWriter {
  Numbers nodes;
  std::vector<Numbers> rowptrs, cols, places;

  std::int64_t* rowptr(std::size_t size) override { return rowptrs.emplace_back(size, -1).data(); }
  std::int64_t* col(std::size_t size) override { return cols.emplace_back(size, -1).data(); }
  void edges(std::span<const std::int64_t> found) override {
    places.emplace_back(found.begin(), found.end());
  }
  std::int64_t edge_count() const {
    std::int64_t count = 0;
    for (const Numbers& col : cols) count += static_cast<std::int64_t>(col.size());
    return count;
  }
  bool same(const Sampled& other) const {
    return nodes == other.nodes && rowptrs == other.rowptrs && cols == other.cols && places == other.places;
  }
};

Key key_of(std::uint64_t number) {
  return {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32) ^ 0x5bd1e995u};
}

void sample_into(Sampled& out, NeighbourSampler& sampler, const Numbers& seeds, const Plan& plan, Key key) {
  const auto nodes = sampler.sample(seeds, plan, key, out);
  out.nodes.assign(nodes.begin(), nodes.end());
}

/// Row v of the result takes messages from lists[v].
Csr csr_of(const std::vector<Numbers>& lists) {
  return make_csr(static_cast<std::int64_t>(lists.size()), {.undirected = false}, [&](const auto& visit) {
    for (std::size_t row = 0; row < lists.size(); ++row)
      for (const std::int64_t source : lists[row]) visit(source, static_cast<std::int64_t>(row));
  });
}

std::vector<Numbers> cycle_of(std::int64_t nodes) {
  std::vector<Numbers> lists;
  for (std::int64_t v = 0; v < nodes; ++v) lists.push_back({(v + nodes - 1) % nodes, (v + 1) % nodes});
  return lists;
}

std::int64_t source_of(const Csr& csr, std::int64_t place) {
  return std::visit([&](const auto& col) { return std::int64_t{col[static_cast<std::size_t>(place)]}; },
                    csr.col);
}

/// P(chi-square with so many degrees of freedom > statistic).
double tail(double statistic, double freedom) {
  return 1.0 - at::special_gammainc(at::scalar_tensor(freedom / 2, at::kDouble),
                                    at::scalar_tensor(statistic / 2, at::kDouble))
                   .item<double>();
}

}  // namespace

// rows
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: rows against sets, for every option") {
  std::mt19937 random(3);
  const auto below = [&](int bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const int nodes = 1 + static_cast<int>(below(12));
    std::vector<std::pair<std::int64_t, std::int64_t>> edges;
    for (std::int64_t i = below(40); i > 0; --i) edges.emplace_back(below(nodes), below(nodes));
    for (const bool undirected : {false, true})
      for (const SelfLoops loops : {SelfLoops::keep, SelfLoops::add, SelfLoops::drop}) {
        std::vector<std::multiset<std::int64_t>> rows(static_cast<std::size_t>(nodes));
        for (const auto& [from, to] : edges) {
          if (from == to && loops != SelfLoops::keep) continue;
          rows[static_cast<std::size_t>(to)].insert(from);
          if (undirected) rows[static_cast<std::size_t>(from)].insert(to);
        }
        const Csr csr = make_csr(nodes, {undirected, loops}, [&](const auto& visit) {
          for (const auto& [from, to] : edges) visit(from, to);
        });
        REQUIRE(csr.nodes() == nodes);
        REQUIRE(std::get<std::span<const std::int32_t>>(csr.col).size() ==
                static_cast<std::size_t>(csr.edges()));
        for (std::int64_t v = 0; v < nodes; ++v) {
          auto& row = rows[static_cast<std::size_t>(v)];
          if (loops == SelfLoops::add) row.insert(v);
          Numbers expected(row.begin(), row.end()), found;
          if (undirected) expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
          for (std::int64_t i = 0; i < csr.degree(v); ++i)
            found.push_back(source_of(csr, csr.rowptr[static_cast<std::size_t>(v)] + i));
          REQUIRE(found == expected);
        }
      }
  }
}

// exact oracles
// --------------------------------------------------------------------------------------------------------

TEST_CASE("graph: a cycle of six in subgraph mode gives the nodes, rows and edges of the published example") {
  const Csr csr = csr_of(cycle_of(6));
  for (const IdMap ids : {IdMap::direct, IdMap::flat}) {
    Sampled found;
    sample_into(found, *make_sampler(csr, ids), {2, 3}, {{-1, -1}, Mode::subgraph}, key_of(1));
    CHECK(found.nodes == Numbers{2, 3, 1, 4, 0, 5});
    CHECK(found.rowptrs == std::vector<Numbers>{{0, 2, 4}, {0, 2, 4}});  // rows 0 0 1 1, then 2 2 3 3
    CHECK(found.cols == std::vector<Numbers>{{2, 1, 0, 3}, {4, 0, 1, 5}});
    CHECK(found.places == std::vector<Numbers>{{4, 5, 6, 7}, {2, 3, 8, 9}});
  }
}

TEST_CASE("graph: the same cycle in mfg mode draws anew for all nodes so far") {
  const Csr csr = csr_of(cycle_of(6));
  Sampled found;
  sample_into(found, *make_sampler(csr, IdMap::direct), {2, 3}, {{-1, -1}, Mode::mfg}, key_of(1));
  CHECK(found.nodes == Numbers{2, 3, 1, 4, 0, 5});
  CHECK(found.rowptrs == std::vector<Numbers>{{0, 2, 4}, {0, 2, 4, 6, 8}});
  CHECK(found.cols == std::vector<Numbers>{{2, 1, 0, 3}, {2, 1, 0, 3, 4, 0, 1, 5}});
}

TEST_CASE("graph: no edges, one node, seeds given twice, loops and edges given twice") {
  const auto sampled = [](const std::vector<Numbers>& lists, const Numbers& seeds, const Plan& plan) {
    Sampled found;
    sample_into(found, *make_sampler(csr_of(lists), IdMap::direct), seeds, plan, key_of(7));
    return found;
  };
  for (const Mode mode : {Mode::mfg, Mode::subgraph})
    for (const bool replace : {false, true}) {
      const Sampled none = sampled(std::vector<Numbers>(9), {0, 1, 2, 3, 4}, {{2, 2}, mode, replace});
      CHECK(none.nodes == Numbers{0, 1, 2, 3, 4});
      CHECK(none.edge_count() == 0);
      CHECK(none.rowptrs[0] == Numbers(6, 0));
    }
  const Sampled loop = sampled({{0, 0}}, {0}, {{3}, Mode::mfg});
  CHECK(loop.nodes == Numbers{0});
  CHECK(loop.cols == std::vector<Numbers>{{0, 0}});
  // A seed that comes twice has two rows; those that take messages from it see the first.
  const Sampled twice = sampled({{1}, {0}}, {0, 1, 0}, {{-1}, Mode::mfg});
  CHECK(twice.nodes == Numbers{0, 1, 0});
  CHECK(twice.rowptrs == std::vector<Numbers>{{0, 1, 2, 3}});
  CHECK(twice.cols == std::vector<Numbers>{{1, 0, 1}});
}

TEST_CASE("graph: a graph whose columns have 64 bits gives the same") {
  Csr narrow = csr_of(cycle_of(40)), wide = narrow;
  const auto col = std::get<std::span<const std::int32_t>>(narrow.col);
  const Numbers wider(col.begin(), col.end());
  wide.col = std::span<const std::int64_t>(wider);
  for (const IdMap ids : {IdMap::direct, IdMap::flat}) {
    Sampled from_narrow, from_wide;
    sample_into(from_narrow, *make_sampler(narrow, ids), {3, 30}, {{1, 1, 1}}, key_of(2));
    sample_into(from_wide, *make_sampler(wide, ids), {3, 30}, {{1, 1, 1}}, key_of(2));
    CHECK(from_narrow.same(from_wide));
  }
}

// frequencies
// --------------------------------------------------------------------------------------------------------

namespace {

/// Eight nodes whose frequencies were found by enumerating all draws.
const std::vector<Numbers> eight = {{1, 2, 3, 4}, {0, 2},    {0, 1, 3, 5, 6}, {0, 2, 7},
                                    {0, 5, 6, 7}, {2, 4, 6}, {2, 4, 5, 7},    {3, 4, 6}};

struct Expected {
  Numbers seeds, fanouts;
  Mode mode;
  double nodes, edges;
  std::map<std::int64_t, double> inclusion;
};

void check_frequencies(const Expected& expected) {
  constexpr int draws = 1'000'000;
  const Csr csr = csr_of(eight);
  const auto sampler = make_sampler(csr, IdMap::direct);
  std::array<double, 8> count{};
  double nodes = 0, nodes_squared = 0, edges = 0, edges_squared = 0;
  struct : HopWriter {
    std::int64_t rows[16], cols[64];
    double edges_seen = 0;
    std::int64_t* rowptr(std::size_t) override { return rows; }
    std::int64_t* col(std::size_t size) override {
      edges_seen += static_cast<double>(size);
      return cols;
    }
  } out;
  for (int i = 0; i < draws; ++i) {
    out.edges_seen = 0;
    const auto found = sampler->sample(expected.seeds, {expected.fanouts, expected.mode},
                                       key_of(static_cast<std::uint64_t>(i)), out);
    for (const std::int64_t node : found.subspan(expected.seeds.size()))
      ++count[static_cast<std::size_t>(node)];
    const auto size = static_cast<double>(found.size());
    nodes += size;
    nodes_squared += size * size;
    edges += out.edges_seen;
    edges_squared += out.edges_seen * out.edges_seen;
  }
  const auto check_mean = [&](double sum, double squares, double mean) {
    const double found = sum / draws, variance = squares / draws - found * found;
    CHECK(std::abs(found - mean) <= 4 * std::sqrt(std::max(variance, 0.0) / draws) + 1e-6);
  };
  check_mean(nodes, nodes_squared, expected.nodes);
  check_mean(edges, edges_squared, expected.edges);
  for (const auto& [node, share] : expected.inclusion) {
    INFO("node " << node);
    CHECK(std::abs(count[static_cast<std::size_t>(node)] / draws - share) <=
          4 * std::sqrt(share * (1 - share) / draws) + 1e-6);
  }
}

}  // namespace

TEST_CASE("graph: a million draws of a graph of eight have the frequencies that enumeration gives") {
  check_frequencies(
      {{0},
       {2, 2},
       Mode::mfg,
       5.716667,
       8,
       {{1, .816667}, {2, .972222}, {3, .816667}, {4, .75}, {5, .416667}, {6, .416667}, {7, .527778}}});
  check_frequencies(
      {{0},
       {2, 2},
       Mode::subgraph,
       5.072222,
       6,
       {{1, .633333}, {2, .944444}, {3, .633333}, {4, .5}, {5, .416667}, {6, .416667}, {7, .527778}}});
  check_frequencies({{0, 5},
                     {2, 1},
                     Mode::mfg,
                     6.611111,
                     9.333333,
                     {{1, .691667}, {2, .96875}, {3, .691667}, {4, .9375}, {6, .866667}, {7, .454861}}});
  check_frequencies({{0, 5},
                     {2, 1},
                     Mode::subgraph,
                     6.245139,
                     7.333333,
                     {{1, .588889}, {2, .9375}, {3, .588889}, {4, .875}, {6, .8}, {7, .454861}}});
}

namespace {

using Picker = std::function<void(std::int64_t degree, std::int64_t picks, std::uint64_t draw, Numbers& out)>;

void pick_ours(std::int64_t degree, std::int64_t picks, std::uint64_t draw, Numbers& out) {
  static PickSet set;
  Draws draws({11, 12}, static_cast<std::int64_t>(draw), 1);
  out.clear();
  pick_distinct(degree, picks, draws, set, [&](std::int64_t position) { out.push_back(position); });
}

/// As the first implementations of this sampler have it: the last of the range is never drawn from.
void pick_biased(std::int64_t degree, std::int64_t picks, std::uint64_t draw, Numbers& out) {
  Draws draws({11, 12}, static_cast<std::int64_t>(draw), 1);
  out.clear();
  for (std::int64_t last = degree - picks; last < degree; ++last) {
    const auto position =
        static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(std::max<std::int64_t>(last, 1))));
    out.push_back(std::find(out.begin(), out.end(), position) == out.end() ? position : last);
  }
}

struct Uniformity {
  double neighbours, pairs;  ///< probabilities of what was seen, or worse
  std::vector<double> share;
};

/// Inclusions of k of d have the covariance N p (1 - p) (d I - 1 1') / (d - 1): hence the factor of the
/// statistic. Of each draw one pair is taken, by other numbers, so that the pairs are a multinomial sample.
Uniformity uniformity(std::int64_t degree, std::int64_t picks, const Picker& pick) {
  constexpr int draws = 200'000;
  std::mt19937_64 other(5);
  std::vector<double> count(static_cast<std::size_t>(degree));
  std::vector<double> pair_count(static_cast<std::size_t>(degree * degree));
  Numbers taken;
  for (int i = 0; i < draws; ++i) {
    pick(degree, picks, static_cast<std::uint64_t>(i), taken);
    for (const std::int64_t position : taken) ++count[static_cast<std::size_t>(position)];
    if (picks < 2) continue;
    const auto a = other() % static_cast<std::uint64_t>(picks);
    const auto b =
        (a + 1 + other() % static_cast<std::uint64_t>(picks - 1)) % static_cast<std::uint64_t>(picks);
    const auto [low, high] = std::minmax(taken[a], taken[b]);
    ++pair_count[static_cast<std::size_t>(low * degree + high)];
  }
  const double d = static_cast<double>(degree), p = static_cast<double>(picks) / d;
  Uniformity found{1.0, 1.0, {}};
  double squares = 0.0, pair_squares = 0.0;
  const double pair_expected = draws / (d * (d - 1) / 2);
  for (std::int64_t low = 0; low < degree; ++low) {
    const double seen = count[static_cast<std::size_t>(low)];
    found.share.push_back(seen / draws);
    squares += (seen - draws * p) * (seen - draws * p);
    for (std::int64_t high = low + 1; high < degree; ++high) {
      const double off = pair_count[static_cast<std::size_t>(low * degree + high)] - pair_expected;
      pair_squares += off * off;
    }
  }
  found.neighbours = tail(squares * (d - 1) / (d * draws * p * (1 - p)), d - 1);
  if (picks >= 2) found.pairs = tail(pair_squares / pair_expected, d * (d - 1) / 2 - 1);
  return found;
}

constexpr std::array<std::array<std::int64_t, 2>, 12> sizes = {{{3, 1},
                                                                {4, 2},
                                                                {5, 4},
                                                                {7, 3},
                                                                {8, 7},
                                                                {10, 2},
                                                                {16, 8},
                                                                {20, 15},
                                                                {33, 32},
                                                                {50, 5},
                                                                {100, 15},
                                                                {100, 70}}};

}  // namespace

TEST_CASE("graph: neighbours and pairs of them are drawn equally often, and the test sees the known bias") {
  for (const auto& [degree, picks] : sizes) {
    INFO(picks << " of " << degree);
    const Uniformity ours = uniformity(degree, picks, pick_ours);
    CHECK(ours.neighbours > 0.001);
    CHECK(ours.pairs > 0.001);
    CHECK(uniformity(degree, picks, pick_biased).neighbours < 0.001);
    // Pairs have less to say where there are many of them.
    if (picks >= 2 && degree <= 10) CHECK(uniformity(degree, picks, pick_biased).pairs < 0.001);
    for (const double share : ours.share) {
      const double p = static_cast<double>(picks) / static_cast<double>(degree);
      CHECK(std::abs(share - p) <= 4.5 * std::sqrt(p * (1 - p) / 200'000));
    }
  }
  const Uniformity biased = uniformity(20, 15, pick_biased);  // k / (d - 1) and (k - 1) / (d - 1)
  CHECK(biased.share.front() == Approx(.7895).margin(.005));
  CHECK(biased.share.back() == Approx(.7368).margin(.005));
}

TEST_CASE("graph: bounds that do not divide 2^32 are drawn evenly, and large ones as well") {
  // In parts of the range, or by remainder.
  const auto check = [](std::uint64_t bound, int parts, bool by_remainder = false) {
    constexpr int draws = 60'000;
    std::vector<double> count(static_cast<std::size_t>(parts));
    for (int i = 0; i < draws; ++i) {
      const std::uint64_t value = Draws({3, 4}, i, 0).below(bound);
      REQUIRE(value < bound);
      const auto share = static_cast<long double>(value) / static_cast<long double>(bound);
      ++count[by_remainder ? value % static_cast<std::uint64_t>(parts)
                           : static_cast<std::size_t>(share * parts)];
    }
    double squares = 0.0;
    const double expected = static_cast<double>(draws) / parts;
    for (const double seen : count) squares += (seen - expected) * (seen - expected);
    CHECK(tail(squares / expected, parts - 1) > 0.001);
  };
  check(3, 3);
  // 2^32 words for 3 * 2^30 numbers: without a rejection every third would come twice as often.
  check(std::uint64_t{3} << 30, 3, true);
  check(std::uint64_t{5} << 32, 5);
}

// properties
// --------------------------------------------------------------------------------------------------------

namespace {

void check_hop(const Csr& csr, const Sampled& found, const Plan& plan, std::size_t hop, std::size_t first,
               std::size_t targets, std::size_t nodes_after) {
  const Numbers &rowptr = found.rowptrs[hop], &col = found.cols[hop], &places = found.places[hop];
  REQUIRE(rowptr.size() == targets - first + 1);
  REQUIRE(rowptr.front() == 0);
  REQUIRE(rowptr.back() == static_cast<std::int64_t>(col.size()));
  REQUIRE(places.size() == col.size());
  for (std::size_t row = 0; row + 1 < rowptr.size(); ++row) {
    const std::int64_t target = found.nodes[first + row];
    const std::int64_t degree = csr.degree(target), fanout = plan.fanouts[hop];
    const std::int64_t expected = fanout < 0 || degree == 0 ? degree
                                  : plan.replace            ? fanout
                                                            : std::min(fanout, degree);
    REQUIRE(rowptr[row + 1] - rowptr[row] == expected);
    std::set<std::int64_t> distinct;
    bool good = true;  // one check a row: there are millions of edges
    for (auto e = static_cast<std::size_t>(rowptr[row]); e < static_cast<std::size_t>(rowptr[row + 1]); ++e) {
      const std::int64_t begin = csr.rowptr[static_cast<std::size_t>(target)];
      good = good && places[e] >= begin && places[e] < begin + degree && col[e] >= 0 &&
             col[e] < static_cast<std::int64_t>(nodes_after) &&
             found.nodes[static_cast<std::size_t>(col[e])] == source_of(csr, places[e]);
      distinct.insert(places[e]);
    }
    if (!plan.replace || fanout < 0) good = good && static_cast<std::int64_t>(distinct.size()) == expected;
    REQUIRE(good);
  }
}

/// Everything that holds of a batch, whatever was drawn.
void check_batch(const Csr& csr, const Numbers& seeds, const Plan& plan, const Sampled& found) {
  REQUIRE(found.nodes.size() >= seeds.size());
  REQUIRE(std::equal(seeds.begin(), seeds.end(), found.nodes.begin()));
  std::set<std::int64_t> seen(seeds.begin(), seeds.end());
  std::size_t first = 0, targets = seeds.size();
  for (std::size_t hop = 0; hop < plan.fanouts.size(); ++hop) {
    // Nodes come in the order in which edges reach them.
    std::size_t after = targets;
    for (const std::int64_t number : found.cols[hop])
      if (number >= static_cast<std::int64_t>(after)) {  // a new node
        REQUIRE(number == static_cast<std::int64_t>(after));
        REQUIRE(after < found.nodes.size());
        REQUIRE(seen.insert(found.nodes[after]).second);
        ++after;
      }
    check_hop(csr, found, plan, hop, first, targets, after);
    if (plan.mode == Mode::subgraph) first = targets;
    targets = after;
  }
  REQUIRE(found.nodes.size() == targets);
}

}  // namespace

TEST_CASE("graph: batches of 1,000 random graphs are what they should be") {
  std::mt19937 random(11);
  const auto below = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random);
  };
  constexpr std::int64_t fanouts[] = {-1, 1, 2, 3, 7, 70};
  for (int trial = 0; trial < 1000; ++trial) {
    const std::int64_t nodes = 1 + below(trial % 10 == 0 ? 400 : 30);
    Numbers ends;
    for (std::int64_t i = below(trial % 10 == 0 ? 20000 : 120); i > 0; --i) {
      ends.push_back(below(below(2) == 0 ? nodes : 1 + nodes / 8));  // some hubs
      ends.push_back(below(nodes));
    }
    const CsrOptions options{below(2) == 0, static_cast<SelfLoops>(below(3))};
    const Csr csr = make_csr(nodes, options, [&](const auto& visit) {
      for (std::size_t i = 0; i < ends.size(); i += 2) visit(ends[i], ends[i + 1]);
    });
    const auto direct = make_sampler(csr, IdMap::direct), flat = make_sampler(csr, IdMap::flat);
    // Of the same sampler: what one batch leaves behind, the next would see.
    for (std::uint64_t batch = 0; batch < 4; ++batch) {
      Plan plan{{}, below(2) == 0 ? Mode::mfg : Mode::subgraph, below(3) == 0};
      for (std::int64_t hops = 1 + below(3); hops > 0; --hops) plan.fanouts.push_back(fanouts[below(6)]);
      Numbers seeds;
      for (std::int64_t i = below(6); i >= 0; --i) seeds.push_back(below(nodes));
      INFO("trial " << trial << ", batch " << batch);
      Sampled found, again;
      sample_into(found, *direct, seeds, plan, key_of(batch));
      check_batch(csr, seeds, plan, found);
      sample_into(again, *flat, seeds, plan, key_of(batch));
      REQUIRE(found.same(again));
    }
  }
}

TEST_CASE("graph: a map with open addressing is a map, over many rounds and growths") {
  std::mt19937_64 random(2);
  FlatMap map;
  for (int round = 0; round < 200; ++round) {
    map.clear();
    std::map<std::int64_t, std::int32_t> expected;
    const auto keys = static_cast<std::uint64_t>(1 + round * 7);
    for (std::int32_t i = 0; i < round * 10; ++i) {
      const auto node = static_cast<std::int64_t>(random() % keys * (round % 3 == 0 ? 1 : 0x100000001));
      const auto known = expected.emplace(node, i).first->second;
      REQUIRE(map.insert(node, i) == known);
    }
  }
}

TEST_CASE("graph: another key, hop or node draws other neighbours; the same draws the same on any thread") {
  const Csr csr = make_csr(300, {.undirected = true}, [&](const auto& visit) {
    std::mt19937 random(4);
    for (int i = 0; i < 6000; ++i) {
      const auto from = static_cast<std::int64_t>(random() % 300);
      visit(from, static_cast<std::int64_t>(random() % 300));
    }
  });
  const Plan plan{{5, 5, 5}};
  const Numbers seeds = {1, 2, 3, 250};
  std::vector<Sampled> expected(64);
  const auto alone = make_sampler(csr, IdMap::direct);
  for (std::size_t i = 0; i < expected.size(); ++i) sample_into(expected[i], *alone, seeds, plan, key_of(i));
  for (std::size_t i = 1; i < expected.size(); ++i) CHECK(expected[i].places[0] != expected[i - 1].places[0]);
  // Hop 2 draws anew for the seeds of hop 1.
  CHECK(Numbers(expected[0].places[1].begin(), expected[0].places[1].begin() + 20) != expected[0].places[0]);
  for (const std::size_t threads : {1, 2, 4}) {
    std::vector<Sampled> found(expected.size());
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        const auto own = make_sampler(csr, t % 2 == 0 ? IdMap::direct : IdMap::flat);
        for (std::size_t i = t; i < found.size(); i += threads)
          sample_into(found[i], *own, seeds, plan, key_of(i));
      });
    for (std::thread& thread : running) thread.join();
    for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i].same(expected[i]));
  }
}

}  // namespace graph_sampling_tests
