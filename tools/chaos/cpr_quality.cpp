// What partial recovery costs in quality, and what prioritised saving gives back: an emulation in one process.
// A model is trained on made-up clicks; now and then a node "fails", and the rows of its shard become those
// that its image on the disk has, while the others go on. Model, data, optimizer, priorities and images are
// the real ones; what is emulated is the failure: no process ends, and nobody waits.
//   chaos_cpr_quality [--quick] [--runs N] [--seed N] [--train N] [--test N] [--lr X] [--signal X]
// After section 5.3 of CPR (plugins/checkpointer/cpr/overhead.hpp).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/dataset.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/model.hpp>
#include <trainyard/optimizer.hpp>

#include "plugins/checkpointer/cpr/controller.hpp"
#include "plugins/checkpointer/cpr/row_priority.hpp"
#include "plugins/checkpointer/cpr/shard_image.hpp"
#include "support/plugin.hpp"

namespace trainyard::chaos {
namespace {

constexpr std::size_t shards = 8;
constexpr double share = 0.125;       ///< r: of the rows of a table, written every r Ts
constexpr double prioritised = 0.99;  ///< least share of all rows that lies in prioritised tables
constexpr std::int64_t batch_size = 256;

struct Setting {
  std::vector<std::int64_t> rows;  ///< of the tables
  std::int64_t train = 600000, test = 250000;
  double lr = 0.05, signal = 2.0;
};

Array array_of(const std::vector<std::int64_t>& values) {
  Array array;
  for (const std::int64_t value : values) array.emplace_back(value);
  return array;
}

/// What all runs see: batches in their order.
struct Clicks {
  BatchSchema schema;
  std::vector<Batch> train, test;
};

std::vector<Batch> read(const Setting& setting, const std::string& split, std::int64_t size,
                        BatchSchema& schema) {
  const auto data = test::make<Dataset>(
      "ctr", test::table({{"size", size}, {"rows", array_of(setting.rows)}, {"signal", setting.signal}}));
  data->open(split);
  schema = data->schema();
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < size; first += batch_size) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch_size, size); ++i) indices.push_back(i);
    batches.push_back(data->read(indices, {RandomStream(0, "data"), first}));
    batches.back().indices = std::move(indices);
  }
  return batches;
}

/// A model in training.
class Training {
 public:
  Training(const Setting& setting, const Clicks& clicks) : clicks_(clicks) {
    const auto model = test::make<Model>(
        "dlrm", test::table({{"dim", 8}, {"top", Array{64}}, {"tables", array_of(setting.rows)}}));
    network_ = model->build({clicks.schema, 1});
    optimizer_ = test::make<Optimizer>("rowwise_adagrad",
                                       test::table({{"lr", setting.lr}, {"tables", Array{"tables.*"}}}));
    optimizer_->open(make_groups(network_->parameters(), optimizer_->common));
    for (ParamGroup& group : optimizer_->groups()) group.lr = group.base_lr;
    loss_ = test::make<Loss>("bce_with_logits");
  }

  void step(std::size_t batch) {
    for (const NamedTensor& each : network_->parameters()) each.tensor.mutable_grad() = at::Tensor();
    const Batch& data = clicks_.train[batch];
    loss_->forward(network_->forward(data, {.training = true, .step = batch}), data).backward();
    optimizer_->step();
  }

  double auc() {
    const c10::NoGradGuard untracked;
    const auto metric = test::make<Metric>("auc");
    metric->reset();
    for (const Batch& batch : clicks_.test) metric->update(network_->forward(batch, {}), {}, batch);
    return metric->compute().front();
  }

  /// Weight and sum of squares of each table, by handle: what is written to them is what trains on.
  std::vector<cpr::ShardTable> tables() const {
    State state;
    StateWriter writer(state);
    optimizer_->save(writer);
    std::vector<cpr::ShardTable> tables;
    for (const NamedTensor& each : network_->parameters())
      if (each.name.starts_with("tables."))
        tables.push_back({each.name,
                          {{"weight", each.tensor.detach()}, {"sum", state.tensors.at("sum/" + each.name)}},
                          {}});
    return tables;
  }

 private:
  const Clicks& clicks_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Loss> loss_;
};

/// Which shard has a row, and where: rows are dealt out by a hash.
class Layout {
 public:
  explicit Layout(const std::vector<std::int64_t>& rows) {
    const RandomStream hash(1, "layout");
    std::uint64_t place = 0;
    for (const std::int64_t count : rows) {
      auto& table = tables_.emplace_back();
      auto& places = places_.emplace_back();
      for (std::int64_t row = 0; row < count; ++row) {
        std::vector<std::int64_t>& shard = table[hash.below(place++, shards)];
        places.push_back(static_cast<std::int64_t>(shard.size()));
        shard.push_back(row);
      }
    }
  }
  /// The rows of a table that a shard has, in its order.
  const std::vector<std::int64_t>& rows(std::size_t table, std::size_t shard) const {
    return tables_[table][shard];
  }
  /// Of some rows of a table, ascending, those of a shard, and their places there.
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> pick(
      std::size_t table, std::size_t shard, const std::vector<std::int64_t>& rows) const {
    std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> picked;
    for (const std::int64_t row : rows) {
      const std::int64_t place = places_[table][static_cast<std::size_t>(row)];
      const auto& own = tables_[table][shard];
      if (place >= static_cast<std::int64_t>(own.size()) || own[static_cast<std::size_t>(place)] != row)
        continue;
      picked.first.push_back(row);
      picked.second.push_back(place);
    }
    return picked;
  }
  std::vector<std::int64_t> rows_of_shards() const {
    std::vector<std::int64_t> sums(shards);
    for (const auto& table : tables_)
      for (std::size_t s = 0; s < shards; ++s) sums[s] += static_cast<std::int64_t>(table[s].size());
    return sums;
  }

 private:
  std::vector<std::array<std::vector<std::int64_t>, shards>> tables_;
  std::vector<std::vector<std::int64_t>> places_;
};

at::Tensor index_of(const std::vector<std::int64_t>& rows) {
  return at::tensor(rows, at::kLong);
}

cpr::RowValues values_of(const cpr::ShardTable& table, const std::vector<std::int64_t>& rows) {
  cpr::RowValues values;
  for (const auto& [name, tensor] : table.values) values[name] = tensor.index_select(0, index_of(rows));
  return values;
}

/// The images of all shards in a folder of their own.
class Images {
 public:
  explicit Images(const Layout& layout) : layout_(layout) {
    std::string name = (std::filesystem::temp_directory_path() / "trainyard-cpr-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw DataError("no temporary folder " + name);
    folder_ = name;
    for (std::size_t s = 0; s < shards; ++s) images_.emplace_back(folder_ + "/shard-" + std::to_string(s));
  }
  ~Images() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Images(const Images&) = delete;
  Images& operator=(const Images&) = delete;

  void write_all(std::int64_t step, const std::vector<cpr::ShardTable>& tables) {
    for (std::size_t s = 0; s < shards; ++s) {
      std::vector<cpr::ShardTable> own;
      for (std::size_t t = 0; t < tables.size(); ++t)
        own.push_back({tables[t].name, values_of(tables[t], layout_.rows(t, s)), {}});
      images_[s].write_base(step, own);
    }
  }
  /// `rows`: of each table.
  void write(std::int64_t step, const std::vector<cpr::ShardTable>& tables,
             const std::vector<std::vector<std::int64_t>>& rows) {
    for (std::size_t s = 0; s < shards; ++s) {
      std::vector<cpr::RowRecords> records;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const auto [own, places] = layout_.pick(t, s, rows[t]);
        if (!own.empty()) records.push_back({tables[t].name, places, values_of(tables[t], own)});
      }
      images_[s].write_records(step, records);
    }
  }
  void compact() {
    for (cpr::ShardImage& image : images_) image.compact();
  }
  /// Makes the rows of a shard what its image has.
  void restore(std::size_t shard, const std::vector<cpr::ShardTable>& tables) const {
    std::map<std::string, cpr::ShardTable> saved;
    for (cpr::ShardTable& table : images_[shard].load()) saved[table.name] = std::move(table);
    for (std::size_t t = 0; t < tables.size(); ++t)
      for (const auto& [name, tensor] : tables[t].values)
        tensor.index_copy_(0, index_of(layout_.rows(t, shard)), saved.at(tables[t].name).values.at(name));
  }

 private:
  const Layout& layout_;
  std::string folder_;
  std::vector<cpr::ShardImage> images_;
};

using Priorities = std::vector<std::unique_ptr<cpr::RowPriority>>;  ///< by table; null: written whole

/// The largest tables that hold `prioritised` of the rows get a priority.
Priorities make_priorities(const std::string& policy, const std::vector<cpr::ShardTable>& tables) {
  std::vector<std::size_t> order(tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rows = [&](std::size_t t) { return tables[t].values.at("weight").size(0); };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rows(a) > rows(b); });
  std::int64_t all = 0, covered = 0;
  for (const std::size_t t : order) all += rows(t);
  Priorities priorities(tables.size());
  for (const std::size_t t : order) {
    if (static_cast<double>(covered) >= prioritised * static_cast<double>(all)) break;
    covered += rows(t);
    if (policy == "mfu") priorities[t] = std::make_unique<cpr::Mfu>(rows(t), share);
    if (policy == "ssu") priorities[t] = std::make_unique<cpr::Ssu>(rows(t), share, t);
    if (policy == "scar") priorities[t] = std::make_unique<cpr::Scar>(tables[t].values.at("weight"), share);
  }
  return priorities;
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
      : policy_(policy),
        clicks_(clicks),
        training_(setting, clicks),
        tables_(training_.tables()),
        layout_(setting.rows),
        images_(layout_),
        priorities_(make_priorities(policy, tables_)),
        meter_(setting.train, layout_.rows_of_shards()),
        all_(std::accumulate(setting.rows.begin(), setting.rows.end(), std::int64_t{0})) {}

  Outcome run(const Failures& failures) {
    const std::size_t steps = clicks_.train.size();
    const auto every = static_cast<std::size_t>(std::lround(failures.interval * static_cast<double>(steps)));
    const auto often = static_cast<std::size_t>(std::lround(share * static_cast<double>(every)));
    const auto drawn = failures.draw(steps);
    auto next = drawn.begin();
    images_.write_all(0, tables_);
    for (std::size_t step = 0; step < steps; ++step) {
      for (; next != drawn.end() && next->first == step; ++next) {
        meter_.failed(next->second, samples(step));
        images_.restore(next->second, tables_);
      }
      training_.step(step);
      tick(step);
      if (policy_ != "vanilla" && (step + 1) % often == 0) save_some(step + 1);
      if ((step + 1) % every == 0) save_rest(step + 1);
    }
    return {training_.auc(), meter_.pls(), static_cast<double>(written_) / static_cast<double>(all_)};
  }

 private:
  static std::int64_t samples(std::size_t step) { return static_cast<std::int64_t>(step) * batch_size; }

  void tick(std::size_t step) {
    const at::Tensor columns = clicks_.train[step].inputs.back().t().contiguous();
    const auto size = static_cast<std::size_t>(columns.size(1));
    for (std::size_t t = 0; t < priorities_.size(); ++t)
      if (priorities_[t]) priorities_[t]->tick({columns.const_data_ptr<std::int64_t>() + t * size, size});
  }

  /// The rows of the highest priority, every r Ts.
  void save_some(std::size_t step) {
    std::vector<std::vector<std::int64_t>> rows(tables_.size());
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (priorities_[t]) rows[t] = priorities_[t]->take(tables_[t].values.at("weight"));
    write(step, rows);
  }

  /// Every Ts: all of it, or, with priorities, what has none.
  void save_rest(std::size_t step) {
    for (std::size_t s = 0; s < shards; ++s) meter_.saved(s, samples(step));
    if (policy_ == "vanilla") {
      images_.write_all(static_cast<std::int64_t>(step), tables_);
      written_ += all_;
      return;
    }
    std::vector<std::vector<std::int64_t>> rows(tables_.size());
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (!priorities_[t]) rows[t] = cpr::Vanilla(tables_[t].values.at("weight").size(0)).take({});
    write(step, rows);
    images_.compact();
  }

  void write(std::size_t step, const std::vector<std::vector<std::int64_t>>& rows) {
    images_.write(static_cast<std::int64_t>(step), tables_, rows);
    for (const auto& each : rows) written_ += static_cast<std::int64_t>(each.size());
  }

  std::string policy_;
  const Clicks& clicks_;
  Training training_;
  std::vector<cpr::ShardTable> tables_;  ///< of the training, by handle
  Layout layout_;
  Images images_;
  Priorities priorities_;
  cpr::LossMeter meter_;
  std::int64_t all_, written_ = 0;
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

const std::vector<std::string> policies = {"vanilla", "mfu", "ssu", "scar"};

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

bool judge(const Figures& figures, bool quick) {
  std::printf("\n");
  bool good = bar(figures.total("vanilla") > 0.0, "vanilla loses: AUC, all runs", figures.total("vanilla"));
  if (quick) return good;  // too short for more
  const double found = correlation(figures.pls, figures.loss.at("vanilla"));
  good &= bar(found >= 0.80, "correlation of PLS and vanilla's loss, >= 0.80", found);
  for (std::size_t i = 0; i < figures.pls.size(); ++i)
    if (std::abs(figures.pls[i] - 0.1) < 0.02)
      good &= bar(figures.loss.at("vanilla")[i] > 5e-4, "vanilla's loss at PLS 0.1, > 0.0005",
                  figures.loss.at("vanilla")[i]);
  for (const char* policy : {"mfu", "ssu"}) {
    const double part = figures.total(policy) / figures.total("vanilla");
    good &= bar(part <= 0.35, (std::string(policy) + "'s loss against vanilla's, <= 0.35").c_str(), part);
    double most = 0.0;
    for (std::size_t i = 0; i < figures.pls.size(); ++i)
      most = std::max(most, figures.written.at(policy)[i] / figures.written.at("vanilla")[i]);
    good &= bar(most <= 1.3,
                (std::string(policy) + "'s rows written against vanilla's, most, <= 1.3").c_str(), most);
  }
  return good;
}

struct Arguments {
  bool quick = false;
  int runs = 4;  ///< of each pattern of failures
  std::uint64_t seed = 1;
  Setting setting;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  Setting& setting = arguments.setting;
  for (int i = 0; i < 16; ++i)  // log-spaced
    setting.rows.push_back(std::llround(10.0 * std::pow(20000.0, i / 15.0)));
  std::map<std::string, std::function<void(const char*)>> with_value = {
      {"--runs", [&](const char* text) { arguments.runs = std::stoi(text); }},
      {"--seed", [&](const char* text) { arguments.seed = std::stoull(text); }},
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
  return arguments;
}

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  at::set_num_threads(1);
  const Setting& setting = arguments.setting;
  Clicks clicks;
  clicks.train = read(setting, "train", setting.train, clicks.schema);
  clicks.test = read(setting, "test", setting.test, clicks.schema);

  Training undisturbed(setting, clicks);
  for (std::size_t step = 0; step < clicks.train.size(); ++step) undisturbed.step(step);
  const double whole = undisturbed.auc();
  std::printf("emulation: %lld samples, %zu tables; AUC without failures %.4f; loss of AUC in 1e-4\n",
              static_cast<long long>(setting.train), setting.rows.size(), whole);
  std::printf("failures  Ts/T    PLS |");
  for (const std::string& policy : policies) std::printf(" %8s", policy.c_str());
  std::printf(" | rows written / R\n");

  Figures figures;
  std::vector<Failures> patterns = {{2, 0.8}, {4, 0.4}, {8, 0.2}, {8, 0.8}};
  if (arguments.quick) patterns = {{8, 0.8}};
  for (int run = 0; run < arguments.runs; ++run)
    for (Failures pattern : patterns) {
      pattern.seed = arguments.seed + static_cast<std::uint64_t>(run);
      std::string losses, rows;
      for (const std::string& policy : policies) {
        const Outcome outcome = Emulation(setting, clicks, policy).run(pattern);
        if (policy == "vanilla") figures.pls.push_back(outcome.pls);
        figures.loss[policy].push_back(whole - outcome.auc);
        figures.written[policy].push_back(outcome.written);
        char text[64];
        std::snprintf(text, sizeof text, " %8.1f", (whole - outcome.auc) * 1e4);
        losses += text;
        std::snprintf(text, sizeof text, " %.2f", outcome.written);
        rows += text;
      }
      std::printf("%8d %5.1f %6.3f |%s |%s\n", pattern.count, pattern.interval, figures.pls.back(),
                  losses.c_str(), rows.c_str());
      std::fflush(stdout);
    }
  return judge(figures, arguments.quick) ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::chaos

int main(int argc, char** argv) {
  try {
    return trainyard::chaos::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos_cpr_quality: %s\n", error.what());
    return 2;
  }
}
