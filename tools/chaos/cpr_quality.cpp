// What partial recovery costs in quality, and what prioritised saving gives back: an emulation in one process
// (cpr_emulation.hpp). A model is trained on made-up clicks; now and then a node "fails", and the rows of its
// shard become those that its image on the disk has, while the others go on.
//   chaos_cpr_quality [--quick] [--jobs N] [--runs N] [--seed N] [--policies vanilla,mfu,ssu,scar]
//                     [--train N] [--test N] [--lr X] [--signal X] [--ratings ratings.csv]
// --ratings: real ones in the place of made-up clicks, as MovieLens has them.
// After section 5.3 of CPR (plugins/checkpointer/cpr/overhead.hpp).
#include "cpr_emulation.hpp"

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/engine/train/memory.hpp"
#include "plugins/checkpointer/cpr/controller.hpp"

namespace trainyard::chaos {
namespace {

/// One pass over ratings (userId,movieId,rating,timestamp) in the order of time: does the user give four stars or
/// more? Every tenth rating is left for the test. Sets the tables and the numbers of samples of `setting`.
Clicks read_ratings(const std::string& path, Setting& setting) {
  struct Rating {
    std::int64_t user, movie, likes, time;
  };
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw DataError(path + ": cannot be read, or is empty");
  std::vector<Rating> all;
  std::map<long long, std::int64_t> users, movies;  // their rows
  while (std::getline(file, line)) {
    long long user = 0, movie = 0, time = 0;
    double stars = 0.0;
    if (std::sscanf(line.c_str(), "%lld,%lld,%lf,%lld", &user, &movie, &stars, &time) != 4)
      throw DataError(path + ": \"" + line + "\" is not userId,movieId,rating,timestamp");
    all.push_back({users.try_emplace(user, std::ssize(users)).first->second,
                   movies.try_emplace(movie, std::ssize(movies)).first->second, stars >= 4.0, time});
  }
  std::ranges::stable_sort(all, {}, &Rating::time);
  setting.rows = {std::ssize(users), std::ssize(movies)};
  const auto data = test::make<Dataset>(
      "ctr", test::table({{"size", 1}, {"features", 0}, {"rows", array_of(setting.rows)}}));
  data->open("train");
  Clicks clicks{.schema = data->schema(), .train = {}, .test = {}};
  std::vector<Rating> parts[2];
  for (std::size_t i = 0; i < all.size(); ++i) parts[i % 10 == 9 ? 1 : 0].push_back(all[i]);
  const auto batches = [](const std::vector<Rating>& ratings) {
    std::vector<Batch> made;
    for (std::size_t first = 0; first < ratings.size(); first += batch_size) {
      const auto count = static_cast<std::int64_t>(std::min<std::size_t>(batch_size, ratings.size() - first));
      const at::Tensor ids = at::empty({count, 2}, at::kLong), likes = at::empty({count}, at::kLong);
      for (std::int64_t i = 0; i < count; ++i) {
        const Rating& rating = ratings[first + static_cast<std::size_t>(i)];
        ids[i][0] = rating.user;
        ids[i][1] = rating.movie;
        likes[i] = rating.likes;
      }
      Batch& batch = made.emplace_back();
      batch.inputs.push_back(ids);
      batch.target = likes;
    }
    return made;
  };
  clicks.train = batches(parts[0]);
  clicks.test = batches(parts[1]);
  setting.train = std::ssize(parts[0]);
  return clicks;
}

struct Failures {
  int count = 0;
  double interval = 0.0;  ///< Ts, as a share of the run
  std::uint64_t seed = 0;

  /// (step, shard), in order.
  std::vector<std::pair<std::size_t, std::size_t>> draw(std::size_t steps) const {
    const RandomStream random(seed, "failures/" + std::to_string(count) + "/" + std::to_string(interval));
    std::vector<std::pair<std::size_t, std::size_t>> drawn;
    for (int i = 0; i < count; ++i) {
      const auto place = static_cast<std::uint64_t>(2 * i);
      drawn.emplace_back(1 + random.below(place, steps - 1), random.below(place + 1, shards));
    }
    std::sort(drawn.begin(), drawn.end());
    return drawn;
  }
};

struct Outcome {
  double auc = 0.0, pls = 0.0;
  double written = 0.0;  ///< rows, as a share of all; save 0 does not count
};

/// One run with its saves and failures.
class Emulation {
 public:
  Emulation(const Setting& setting, const Clicks& clicks, const std::string& policy)
      : clicks_(clicks),
        training_(setting, clicks),
        tables_(training_.tables()),
        layout_(setting.rows),
        images_(layout_),
        saves_(policy, tables_, images_),
        meter_(setting.train, layout_.rows_of_shards()),
        all_(std::accumulate(setting.rows.begin(), setting.rows.end(), std::int64_t{0})) {}

  Outcome run(const Failures& failures) {
    const std::size_t steps = clicks_.train.size();
    const auto drawn = failures.draw(steps);
    auto next = drawn.begin();
    for (std::size_t step = 0; step < steps; ++step) {
      for (; next != drawn.end() && next->first == step; ++next) {
        meter_.failed(next->second, samples(step));
        images_.restore(next->second, tables_);
      }
      training_.step(step);
      saves_.tick(columns_of(clicks_.train[step]));
      if (!saves_.due(step + 1, failures.interval * static_cast<double>(steps))) continue;
      if (!saves_.write(step + 1)) continue;
      for (std::size_t s = 0; s < shards; ++s) meter_.saved(s, samples(step + 1));
    }
    return {training_.auc(), meter_.pls(), static_cast<double>(saves_.rows()) / static_cast<double>(all_)};
  }

 private:
  static std::int64_t samples(std::size_t step) { return static_cast<std::int64_t>(step) * batch_size; }

  const Clicks& clicks_;
  Training training_;
  std::vector<cpr::ShardTable> tables_;  ///< of the training, by handle
  Layout layout_;
  Images images_;
  Saves saves_;
  cpr::LossMeter meter_;
  std::int64_t all_;
};

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mx = 0.0, my = 0.0, xy = 0.0, xx = 0.0, yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mx += x[i] / n;
    my += y[i] / n;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xy / std::sqrt(xx * yy);
}

using Policies = std::vector<std::string>;

/// Figures of all runs, by policy.
struct Figures {
  std::vector<double> pls;
  std::map<std::string, std::vector<double>> loss, written;

  double total(const std::string& policy) const {
    return std::accumulate(loss.at(policy).begin(), loss.at(policy).end(), 0.0);
  }
};

bool bar(bool holds, const char* what, double found) {
  std::printf("%-62s %9.4f  %s\n", what, found, holds ? "yes" : "NO");
  return holds;
}

/// Policies that were left out are not judged.
bool judge(const Figures& figures, bool quick) {
  std::printf("\n");
  if (!figures.loss.contains("vanilla")) return true;
  const double vanilla = figures.total("vanilla");
  bool good = bar(vanilla > 0.0, "vanilla loses: AUC, all runs", vanilla);
  if (quick) return good;  // too short for more
  const double found = correlation(figures.pls, figures.loss.at("vanilla"));
  good &= bar(found >= 0.80, "correlation of PLS and vanilla's loss, >= 0.80", found);
  for (std::size_t i = 0; i < figures.pls.size(); ++i)
    if (std::abs(figures.pls[i] - 0.1) < 0.02)
      good &= bar(figures.loss.at("vanilla")[i] > 5e-4, "vanilla's loss at PLS 0.1, > 0.0005",
                  figures.loss.at("vanilla")[i]);
  for (const std::string policy : {"mfu", "ssu"}) {
    if (!figures.loss.contains(policy)) continue;
    const double part = figures.total(policy) / vanilla;
    good &= bar(part <= 0.35, (policy + "'s loss against vanilla's, <= 0.35").c_str(), part);
    double most = 0.0;
    for (std::size_t i = 0; i < figures.pls.size(); ++i)
      most = std::max(most, figures.written.at(policy)[i] / figures.written.at("vanilla")[i]);
    good &= bar(most <= 1.3, (policy + "'s rows written against vanilla's, most, <= 1.3").c_str(), most);
  }
  return good;
}

struct Arguments {
  bool quick = false;
  int runs = 4;  ///< of each pattern of failures
  int jobs = 2;
  std::uint64_t seed = 1;
  Policies policies = {"vanilla", "mfu", "ssu"};
  std::string ratings;
  Setting setting;
};

Policies list_of(const std::string& text) {
  Policies policies;
  std::istringstream in(text);
  for (std::string policy; std::getline(in, policy, ',');) policies.push_back(policy);
  return policies;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  Setting& setting = arguments.setting;
  setting.rows = criteo_like();
  std::map<std::string, std::function<void(const char*)>> with_value = {
      {"--jobs", [&](const char* text) { arguments.jobs = std::stoi(text); }},
      {"--runs", [&](const char* text) { arguments.runs = std::stoi(text); }},
      {"--seed", [&](const char* text) { arguments.seed = std::stoull(text); }},
      {"--ratings", [&](const char* text) { arguments.ratings = text; }},
      {"--policies", [&](const char* text) { arguments.policies = list_of(text); }},
      {"--train", [&](const char* text) { setting.train = std::stoll(text); }},
      {"--test", [&](const char* text) { setting.test = std::stoll(text); }},
      {"--lr", [&](const char* text) { setting.lr = std::stod(text); }},
      {"--signal", [&](const char* text) { setting.signal = std::stod(text); }}};
  for (int i = 1; i < argc; ++i) {
    const auto option = with_value.find(argv[i]);
    if (std::strcmp(argv[i], "--quick") == 0) {
      arguments.quick = true;
      arguments.runs = 1;
      setting = {.rows = {10, 100, 1000, 4000}, .train = 30000, .test = 10000};
    } else if (option != with_value.end() && i + 1 < argc) {
      option->second(argv[++i]);
    } else {
      throw ConfigError(std::string("no option ") + argv[i]);
    }
  }
  const Setting defaults;
  if (!arguments.ratings.empty() && (arguments.quick || setting.train != defaults.train ||
                                     setting.test != defaults.test || setting.signal != defaults.signal))
    throw ConfigError("--ratings brings its samples along: leave out --quick, --train, --test and --signal");
  return arguments;
}

/// Calls `work` with 0, 1, ... count - 1, on some threads.
template <class Work>
void spread(std::size_t count, int threads, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> pool;
  for (int i = 0; i < threads; ++i)
    pool.push_back(std::async(std::launch::async, [&] {
      at::set_num_threads(1);
      for (std::size_t mine; (mine = next++) < count;) work(mine);
    }));
  for (std::future<void>& each : pool) each.get();
}

/// A row of the table, in 1e-4 of AUC.
void print(const Failures& pattern, const Policies& policies, const Figures& figures) {
  std::printf("%8d %5.1f %6.3f |", pattern.count, pattern.interval, figures.pls.back());
  for (const std::string& policy : policies) std::printf(" %8.1f", figures.loss.at(policy).back() * 1e4);
  std::printf(" |");
  for (const std::string& policy : policies) std::printf(" %.2f", figures.written.at(policy).back());
  std::printf("\n");
}

int main(int argc, char** argv) {
  Arguments arguments = parse(argc, argv);
  train::keep_large_blocks();
  Setting& setting = arguments.setting;
  const Policies& policies = arguments.policies;
  Clicks clicks;
  if (arguments.ratings.empty()) {
    clicks.train = read(setting, "train", setting.train, clicks.schema);
    clicks.test = read(setting, "test", setting.test, clicks.schema);
  } else {
    clicks = read_ratings(arguments.ratings, setting);
  }

  std::vector<Failures> patterns = {{2, 0.8}, {4, 0.4}, {8, 0.2}, {8, 0.8}}, runs;
  if (arguments.quick) patterns = {{8, 0.8}};
  for (int run = 0; run < arguments.runs; ++run)
    for (Failures pattern : patterns) {
      pattern.seed = arguments.seed + static_cast<std::uint64_t>(run);
      runs.push_back(pattern);
    }
  double whole = 0.0;
  std::vector<Outcome> outcomes(runs.size() * policies.size());
  spread(outcomes.size() + 1, arguments.jobs, [&](std::size_t i) {
    if (i == 0) {
      Training undisturbed(setting, clicks);
      for (std::size_t step = 0; step < clicks.train.size(); ++step) undisturbed.step(step);
      whole = undisturbed.auc();
      return;
    }
    const std::string& policy = policies[(i - 1) % policies.size()];
    const Failures& run = runs[(i - 1) / policies.size()];
    Outcome& outcome = outcomes[i - 1];
    outcome = Emulation(setting, clicks, policy).run(run);
    std::fprintf(stderr, "%zu of %zu: %d failures, Ts/T %.1f, seed %llu, %s: PLS %.3f, AUC %.6f, rows %.2f\n",
                 i, outcomes.size(), run.count, run.interval, static_cast<unsigned long long>(run.seed),
                 policy.c_str(), outcome.pls, outcome.auc, outcome.written);
  });

  std::printf("emulation: %lld samples, %zu tables; AUC without failures %.4f; loss of AUC in 1e-4\n",
              static_cast<long long>(setting.train), setting.rows.size(), whole);
  std::printf("failures  Ts/T    PLS |");
  for (const std::string& policy : policies) std::printf(" %8s", policy.c_str());
  std::printf(" | rows written / R\n");
  Figures figures;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (std::size_t p = 0; p < policies.size(); ++p) {
      const Outcome& outcome = outcomes[run * policies.size() + p];
      if (p == 0) figures.pls.push_back(outcome.pls);
      figures.loss[policies[p]].push_back(whole - outcome.auc);
      figures.written[policies[p]].push_back(outcome.written);
    }
    print(runs[run], policies, figures);
  }
  return judge(figures, arguments.quick) ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  return trainyard::chaos::run_program("chaos_cpr_quality",
                                       [&] { return trainyard::chaos::main(argc, argv); });
}
