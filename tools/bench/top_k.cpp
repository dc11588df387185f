// The selection of a gradient's largest elements.
//   trainyard bench top_k speed    25.6 M elements, as many as ResNet-50 has, on one core
//   trainyard bench top_k recall   what MSTopK finds of the largest k of a million
#include <cmath>
#include <functional>
#include <memory>

#include "kernels/cpu/top_k.hpp"
#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

using namespace kernels;
using Floats = std::vector<float>;
using Indices = std::vector<std::int32_t>;
using Random = std::mt19937_64;

// --- speed

float magnitude(float x) {
  return std::abs(x);
}

/// Vectors of a register, added up as integers: next to nothing but loads.
std::uint64_t read_all(const Floats& x) {
  typedef std::uint64_t Vector __attribute__((vector_size(16)));
  typedef std::uint64_t Anywhere __attribute__((vector_size(16), aligned(4), may_alias));
  Vector a{}, b{}, c{}, d{};
  for (std::size_t i = 0; i + 16 <= x.size(); i += 16) {
    const auto* const from = reinterpret_cast<const Anywhere*>(x.data() + i);
    a += from[0];
    b += from[1];
    c += from[2];
    d += from[3];
  }
  const Vector sum = a + b + c + d;
  return sum[0] ^ sum[1];
}

struct Selector {
  TopK top_k;
  Indices indices;
  Floats values;
  Selected selected;

  explicit Selector(std::int64_t k) : indices(static_cast<std::size_t>(k)), values(indices.size()) {}
  void select(const Floats& x, const Selection& how) {
    selected = top_k.select(x, how, 12345, indices, values);
  }
};

/// Makes the element after the k-th equal to it: no threshold has k elements above it then, and a bisection
/// does all of its steps.
void tie(Floats& x, std::int64_t k) {
  Selector first(k), more(k + 1);
  first.select(x, {});
  more.select(x, {});
  const float last = *std::ranges::min_element(first.values, {}, magnitude);
  const auto [place, rest] = std::ranges::mismatch(more.indices, first.indices);
  x[static_cast<std::size_t>(*place)] = last;
}

void speed_at(Floats& x, double density, int rounds) {
  const auto k = static_cast<std::int64_t>(density * static_cast<double>(x.size()));
  tie(x, k);
  Floats copy(x.size());
  volatile std::uint64_t sink = 0;
  std::vector<Contender> contenders{{"a copy of |x| and std::nth_element", [&] {
                                       std::ranges::transform(x, copy.begin(), magnitude);
                                       std::nth_element(copy.begin(), copy.begin() + (k - 1), copy.end(),
                                                        std::greater<>());
                                     }}};
  std::vector<std::shared_ptr<Selector>> selectors;
  const auto add = [&](const char* name, const Selection& how) {
    const auto selector = selectors.emplace_back(std::make_shared<Selector>(k));
    contenders.push_back({name, [selector, how, &x] { selector->select(x, how); }});
  };
  add("mstopk, 30 samples, one threshold a pass", {.method = Method::mstopk, .levels = 1});
  add("mstopk, 30 samples, 7 thresholds a pass", {.method = Method::mstopk});
  add("mstopk, 30 samples, 15 thresholds a pass", {.method = Method::mstopk, .levels = 4});
  add("bitsearch, 7 thresholds a pass", {.method = Method::bitsearch});
  add("radix", {.method = Method::radix});
  contenders.push_back({"one pass of loads", [&] { sink = read_all(x); }});
  const std::vector<Times> times = contest(contenders, rounds);
  char title[100];
  std::snprintf(title, sizeof title, "The largest %lld of %zu (%g)", static_cast<long long>(k), x.size(),
                density);
  print(title, "ms", 1e-3, 1, contenders, times);
  const auto best = [&](std::size_t i) { return percentile(times[i].cpu, 0); };
  const std::size_t radix = contenders.size() - 2, loads = contenders.size() - 1;
  const double gigabytes = static_cast<double>(x.size()) * 4e-9;
  std::printf("  radix is %.1f times as fast as nth_element (bar 8), %.1f as one threshold a pass (bar 3)\n",
              best(0) / best(radix), best(1) / best(radix));
  std::printf("  mstopk with 7 thresholds a pass is %.1f times as fast as with one\n", best(1) / best(2));
  for (std::size_t i = 0; i < selectors.size(); ++i)
    std::printf("  %-44s %3d passes, %5.1f GB/s\n", contenders[i + 1].name.c_str(),
                selectors[i]->selected.passes, gigabytes * selectors[i]->selected.passes / best(i + 1));
  std::printf("  %-44s   1 pass,   %5.1f GB/s\n", contenders[loads].name.c_str(), gigabytes / best(loads));
}

void speed(bool quick) {
  Random random(1);
  std::normal_distribution<float> normal;
  Floats x(quick ? 1'000'000 : 25'557'032);
  for (float& each : x) each = normal(random);
  for (const double density : {0.001, 0.01, 0.1}) speed_at(x, density, quick ? 1 : 12);
}

// --- recall

struct Quality {
  double recall, energy;
};

Quality quality(const Floats& x, const Indices& found, const Indices& exact) {
  Indices both;
  std::ranges::set_intersection(found, exact, std::back_inserter(both));
  const auto squares = [&](const Indices& indices) {
    double sum = 0;
    for (const std::int32_t i : indices)
      sum += std::pow(static_cast<double>(x[static_cast<std::size_t>(i)]), 2);
    return sum;
  };
  return {static_cast<double>(both.size()) / static_cast<double>(exact.size()),
          squares(found) / squares(exact)};
}

/// By std::nth_element of indices, which knows nothing of the kernels.
Indices largest(const Floats& x, std::int64_t k) {
  Indices all(x.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  const auto key = [&](std::int32_t i) { return std::pair(-magnitude(x[static_cast<std::size_t>(i)]), i); };
  std::ranges::nth_element(all, all.begin() + k, {}, key);
  all.resize(static_cast<std::size_t>(k));
  std::ranges::sort(all);
  return all;
}

struct Row {
  const char* name;
  std::function<double(Random&)> draw;
  double outlier, density;
  Selection how;
  const char* card;
};

std::vector<Row> rows() {
  const auto normal = [](Random& random) { return std::normal_distribution<double>()(random); };
  const auto laplace = [](Random& random) {
    const double x = std::exponential_distribution<double>()(random);
    return random() % 2 == 0 ? x : -x;
  };
  const auto student = [](Random& random) { return std::student_t_distribution<double>(3)(random); };
  const auto mstopk = [](int samples, Start start = Start::mean) {
    return Selection{.method = Method::mstopk, .samples = samples, .start = start};
  };
  const Selection bits{.method = Method::bitsearch}, radix{.method = Method::radix};
  return {{"normal, mstopk 5", normal, 0, 0.01, mstopk(5), "0.912 / 0.9967"},
          {"normal, mstopk 10", normal, 0, 0.01, mstopk(10), "0.998 / 0.999998"},
          {"normal, mstopk 30", normal, 0, 0.01, mstopk(30), "1.0"},
          {"Laplace, mstopk 5", laplace, 0, 0.001, mstopk(5), "0.912"},
          {"Laplace, mstopk 10", laplace, 0, 0.001, mstopk(10), "0.997"},
          {"Laplace, mstopk 30", laplace, 0, 0.001, mstopk(30), "1.0"},
          {"Student 3, mstopk 5", student, 0, 0.01, mstopk(5), "0.239 / 0.654"},
          {"Student 3, mstopk 10", student, 0, 0.01, mstopk(10), "0.967"},
          {"Student 3, mstopk 15", student, 0, 0.01, mstopk(15), "0.999"},
          {"Student 3, mstopk 30", student, 0, 0.01, mstopk(30), "1.0"},
          {"normal, mstopk 30 from the mean", normal, 0, 0.5, mstopk(30), "0.871"},
          {"normal, mstopk 30 from the minimum", normal, 0, 0.5, mstopk(30, Start::minimum), "1.0"},
          {"outlier 1e3, mstopk 30", normal, 1e3, 0.01, mstopk(30), "1.0"},
          {"outlier 1e6, mstopk 15", normal, 1e6, 0.01, mstopk(15), "0.012"},
          {"outlier 1e6, mstopk 30", normal, 1e6, 0.01, mstopk(30), "1.0"},
          {"outlier 1e8, mstopk 15", normal, 1e8, 0.01, mstopk(15), "0.010"},
          {"outlier 1e8, mstopk 30", normal, 1e8, 0.01, mstopk(30), "0.010"},
          {"outlier 1e8, mstopk 45", normal, 1e8, 0.01, mstopk(45), "0.010"},
          {"outlier 1e8, bitsearch", normal, 1e8, 0.01, bits, "1.0"},
          {"outlier 1e8, radix", normal, 1e8, 0.01, radix, "1.0"},
          {"Student 3, bitsearch", student, 0, 0.01, bits, "1.0"},
          {"Student 3, radix", student, 0, 0.01, radix, "1.0"}};
}

void recall(bool quick) {
  const int seeds = quick ? 1 : 20;
  const std::size_t count = quick ? 100'000 : 1'000'000;
  std::printf("Recall and energy of %d tensors of %zu elements\n  %-36s %8s   %-26s %-30s %s\n", seeds, count,
              "", "density", "recall: mean (range)", "energy: mean (range)", "card");
  for (const Row& row : rows()) {
    std::vector<double> recalls, energies;
    for (int seed = 1; seed <= seeds; ++seed) {
      Random random(static_cast<std::uint64_t>(seed));
      Floats x(count);
      for (float& each : x) each = static_cast<float>(row.draw(random));
      if (row.outlier > 0) x[random() % count] = static_cast<float>(row.outlier);
      const auto k = static_cast<std::int64_t>(row.density * static_cast<double>(count));
      Selector selector(k);
      selector.selected = selector.top_k.select(x, row.how, random(), selector.indices, selector.values);
      const Quality found = quality(x, selector.indices, largest(x, k));
      recalls.push_back(found.recall);
      energies.push_back(found.energy);
    }
    const auto told = [&](const std::vector<double>& all, int digits) {
      double sum = 0;
      for (const double each : all) sum += each;
      char text[64];
      std::snprintf(text, sizeof text, "%.*f (%.*f to %.*f)", digits, sum / seeds, digits, percentile(all, 0),
                    digits, percentile(all, 1));
      return std::string(text);
    };
    std::printf("  %-36s %8g   %-26s %-30s %s\n", row.name, row.density, told(recalls, 4).c_str(),
                told(energies, 6).c_str(), row.card);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments given(argc, argv);
  if (given.wants("speed")) speed(given.quick);
  if (given.wants("recall")) recall(given.quick);
}
