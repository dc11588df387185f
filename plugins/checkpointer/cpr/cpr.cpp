// Goes on without a rank that is killed, as in Maeng et al., "Understanding and Improving Failure Tolerant
// Training for Deep Learning Recommendation with Partial Recovery" (CPR), MLSys 2021. What all ranks have
// alike comes from a survivor and loses nothing. Rows of embedding tables that the lost rank alone had come
// from its image on the disk, and have lost what they learnt since it was written; how often it is written
// follows from how much of that the user tolerates. Times are counted in steps, as the slowest rank has measured them:
// all ranks plan by the same figures.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <trainyard/checkpointer.hpp>
#include <trainyard/context.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/helpers/rank_folder.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/sharded.hpp>

#include "controller.hpp"
#include "row_priority.hpp"
#include "shard_image.hpp"

namespace {

using namespace trainyard;
using Json = nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point began) {
  return std::chrono::duration<double>(SteadyClock::now() - began).count();
}

/// Rows of a table that this rank owns, with what the optimizer has of them: the run's own tensors.
struct OwnRows {
  std::string name;
  cpr::RowValues values;  ///< "weight", "sum", ...

  const at::Tensor& weight() const { return values.at("weight"); }
};

/// What was lost by a step, with all that was lost before.
struct Loss {
  std::int64_t step = 0;
  double pls = 0.0;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Loss, step, pls)
};

/// What a rank has measured since the last plan, in steps; 0: nothing.
struct Measured {
  double tables = 0.0;      ///< it stood still for a save of its rows
  double fold = 0.0;        ///< for the part of that which writes one file
  double checkpoint = 0.0;  ///< for a whole checkpoint
};

class Cpr final : public Checkpointer, ReplacesRanks {
 public:
  struct Options {
    double target_pls = 0.1;
    double mtbf = 10000.0;
    std::string priority = "mfu";
    double share = 0.125;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cpr").version("1.0.0").summary(
        "Goes on where a rank is killed: the others keep what they have, a new process loads its rows of the "
        "tables.");
    m.needs("steps").needs("no divides_network");
    m.option("target_pls", &Options::target_pls,
             "portion of the samples whose updates of the tables may be lost, in the end")
        .above(0.0)
        .below(1.0);
    m.option("mtbf", &Options::mtbf, "steps between failures, as believed before there was one").above(0.0);
    m.option(
         "priority", &Options::priority,
         "rows that are written first: those used most (mfu), a sample of those used (ssu), those that moved "
         "furthest (scar); vanilla writes all")
        .one_of({"vanilla", "scar", "mfu", "ssu"});
    m.option("share", &Options::share,
             "of the rows at a write, which then comes 1 / share times as often; not of vanilla")
        .above(0.0)
        .below(1.0);
    m.hook<&Cpr::fit_start>(Event::fit_start).sink();
    m.hook<&Cpr::begin>(Event::before_fetch).sink();
    m.hook<&Cpr::ask>(Event::safe_point).writes(Region::control);
    m.hook<&Cpr::safe_point>(Event::safe_point).sink();
  }
  explicit Cpr(const Options& options) : options_(options) {}

  void open(CheckpointStore& store) override { store_ = &store; }
  void take(Snapshot snapshot) override;
  void drain() override {}

  ReplacesRanks* replaces_ranks() override { return this; }
  void replaced(const Replacement& what, Network& network, Optimizer& optimizer) override;

  void fit_start(StepContext& context) { scale_ = context.scale(); }
  void begin(StepContext& context) {
    if (!std::exchange(began_, true) && tables_.empty()) find_tables(context.network(), context.optimizer());
    if (tables_.empty() || image_) return;
    const Clock& clock = context.clock();
    count_run(clock.step);
    write_base(clock.step);
    saved(clock.samples);
    due_ = static_cast<double>(clock.step);
    plan(clock.step);
  }
  void ask(StepContext& context);
  void safe_point(StepContext& context);

 private:
  void find_tables(Network& network, Optimizer& optimizer);
  void count_run(std::int64_t step);
  void count(const cpr::Costs& costs);
  void write_base(std::int64_t step);
  std::int64_t write_turn(const Clock& clock);
  void fold(const Clock& clock);
  void write(const Clock& clock);
  void saved(std::int64_t samples);
  cpr::Plan now(std::int64_t step) const;
  Measured of_slowest() const;
  void plan(std::int64_t step);
  double pls() const { return pls_before_ + losses_->pls(); }
  std::int64_t load_image(std::int64_t step);
  void remember() const;
  Json figures() const;
  void take_figures(const Json& figures);

  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> weights;
    for (const OwnRows& table : tables_) weights.push_back(table.weight());
    return weights;
  }
  int turns_in_a_round() const {
    return options_.priority == "vanilla" ? 1 : static_cast<int>(std::lround(1.0 / options_.share));
  }
  std::string folder() const { return host().run().directory + "/tables"; }

  Options options_;
  CheckpointStore* store_ = nullptr;
  RunScale scale_;
  bool began_ = false;
  std::vector<OwnRows> tables_;  ///< empty: all ranks have all of the model
  std::optional<cpr::Priorities> priorities_;
  std::vector<std::int64_t> rows_of_ranks_;
  std::optional<cpr::ShardImage> image_;
  std::optional<cpr::Controller> controller_;
  std::optional<cpr::LossMeter> losses_;
  std::vector<std::int64_t> saved_samples_;  ///< by rank: those that its image has all of
  std::vector<Loss> log_;                    ///< of the run so far
  double pls_before_ = 0.0;                  ///< lost ahead of what `losses_` counts
  cpr::Mode mode_ = cpr::Mode::partial;
  double due_ = 0.0;               ///< the step of the next save: of rows, or of everything where all go back
  int turn_ = 0;                   ///< of a round of writes
  std::int64_t rows_written_ = 0;  ///< in this round
  double stalled_ = 0.0;           ///< seconds, the same
  Measured measured_;
  bool knows_checkpoints_ = false;  ///< what they cost; until then an image in one file stands in for one
  SteadyClock::time_point last_ = SteadyClock::now();
  double step_seconds_ = 0.0;
};

void Cpr::find_tables(Network& network, Optimizer& optimizer) {
  auto* const sharded = dynamic_cast<ShardsTables*>(&network);
  const Ranks* const ranks = host().run().ranks;
  if (sharded == nullptr || ranks == nullptr) return;
  State state;
  StateWriter writer(state);
  optimizer.save(writer);
  rows_of_ranks_.assign(static_cast<std::size_t>(ranks->size()), 0);
  for (const ShardedTable& table : sharded->sharded()) {
    OwnRows own{.name = table.name, .values = {}};
    for (const NamedTensor& each : network.parameters())
      if (each.name == table.name) own.values.emplace("weight", each.tensor.detach());
    for (const auto& [name, tensor] : state.tensors)
      if (name.ends_with("/" + table.name) && tensor.dim() > 0 && tensor.size(0) == own.weight().size(0))
        own.values.emplace(name.substr(0, name.size() - table.name.size() - 1), tensor);
    tables_.push_back(std::move(own));
    for (int rank = 0; rank < ranks->size(); ++rank) {
      const auto [first, last] = rows_of_rank(table.rows, rank, ranks->size());
      rows_of_ranks_[static_cast<std::size_t>(rank)] += last - first;
    }
  }
  priorities_.emplace(options_.priority, weights(), options_.share);
  sharded->on_lookup(
      [this](std::size_t table, std::span<const std::int64_t> rows) { priorities_->tick(table, rows); });
}

/// Of a run that begins, or was resumed. Losses behind the step that it goes on from were undone; they were failures
/// all the same.
void Cpr::count_run(std::int64_t step) {
  std::ifstream in(rank_folder(host().run(), 0) + "/tables/losses.json");
  const Json found = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (found.is_object())  // else it was killed ahead of its first write, or it has none
    for (Loss& each : found.at("losses").get<std::vector<Loss>>()) {
      if (each.step <= step) pls_before_ = each.pls;
      log_.push_back({std::min(each.step, step), pls_before_});
    }
  saved_samples_.assign(rows_of_ranks_.size(), 0);
  count({.save = 1.0, .save_shard = 1.0, .load = 1.0, .load_shard = 1.0, .reschedule = 1.0});
}

/// What the plan goes by, from here on.
void Cpr::count(const cpr::Costs& costs) {
  if (scale_.total_steps <= 0)
    throw ConfigError(
        "trainer.max_duration is counted in time, and checkpoint.type = \"cpr\" plans by steps: use ep, "
        "ba or sp");
  const auto duration = static_cast<double>(scale_.total_steps);
  controller_.emplace(cpr::Controller::Settings{.target_pls = options_.target_pls,
                                                .job = {.duration = duration,
                                                        .mtbf = options_.mtbf,
                                                        .shards = static_cast<double>(rows_of_ranks_.size())},
                                                .costs = costs,
                                                .failures = std::ssize(log_)});
  losses_.emplace(scale_.total_steps * scale_.samples_per_step, rows_of_ranks_);
  for (std::size_t rank = 0; rank < rows_of_ranks_.size(); ++rank) losses_->saved(rank, saved_samples_[rank]);
}

void Cpr::write_base(std::int64_t step) {
  if (!image_) image_.emplace(folder());
  std::vector<cpr::ShardTable> all;
  for (const OwnRows& table : tables_) all.push_back({table.name, table.values, {}});
  image_->write_base(step, all);
  priorities_->take_all(weights());
}

/// The rows whose turn it is. Gives how many.
std::int64_t Cpr::write_turn(const Clock& clock) {
  const at::NoGradGuard no_grad;
  std::int64_t written = 0;
  std::vector<cpr::RowRecords> records;
  std::vector<std::vector<std::int64_t>> turn = priorities_->take(weights());
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (turn[t].empty()) continue;
    cpr::RowRecords record{.table = tables_[t].name, .rows = std::move(turn[t]), .values = {}};
    written += std::ssize(record.rows);
    const at::Tensor rows = at::from_blob(record.rows.data(), {std::ssize(record.rows)}, at::kLong);
    for (const auto& [name, values] : tables_[t].values)
      record.values.emplace(name, values.index_select(0, rows));
    records.push_back(std::move(record));
  }
  if (!records.empty()) image_->write_records(clock.step, records);
  return written;
}

/// All in one file: the records of a round, or every row as it is now.
void Cpr::fold(const Clock& clock) {
  if (turns_in_a_round() == 1) {
    rows_written_ = rows_of_ranks_[static_cast<std::size_t>(host().run().ranks->rank())];
    return write_base(clock.step);
  }
  try {
    image_->compact();
  } catch (const DataError& error) {  // what was written is damaged, what is in memory is not
    host().log(LogLevel::warning, std::string(error.what()) + "; all rows are written anew");
    write_base(clock.step);
  }
}

/// What is due: all rows at once, or one turn of them, and behind the last turn of a round all in one file.
void Cpr::write(const Clock& clock) {
  const auto began = SteadyClock::now();
  const int turns = turns_in_a_round();
  if (turns > 1) rows_written_ += write_turn(clock);
  if (++turn_ < turns) {
    stalled_ += seconds_since(began);
    return plan(clock.step);
  }
  const auto folded = SteadyClock::now();
  fold(clock);
  if (!knows_checkpoints_) measured_.fold = seconds_since(folded) / step_seconds_;
  measured_.tables = (std::exchange(stalled_, 0.0) + seconds_since(began)) / step_seconds_;
  host().journal("tables_saved", std::to_string(std::exchange(rows_written_, 0)) + " rows in " +
                                     std::to_string(std::exchange(turn_, 0)) + " parts");
  plan(clock.step);
  saved(clock.samples);  // by now all ranks have theirs
}

/// All that was learnt from so many samples is in the images of all ranks.
void Cpr::saved(std::int64_t samples) {
  saved_samples_.assign(saved_samples_.size(), samples);
  for (std::size_t rank = 0; rank < saved_samples_.size(); ++rank) losses_->saved(rank, samples);
  remember();
}

cpr::Plan Cpr::now(std::int64_t step) const {
  const auto steps = static_cast<double>(step);
  return controller_->plan(steps / static_cast<double>(scale_.total_steps), steps, pls());
}

/// All wait for it. A collective.
Measured Cpr::of_slowest() const {
  Ranks& ranks = *host().run().ranks;
  const at::Tensor own = at::empty({3}, at::kDouble), all = at::empty({3 * ranks.size()}, at::kDouble);
  double* const to = own.mutable_data_ptr<double>();
  to[0] = measured_.tables;
  to[1] = measured_.fold;
  to[2] = measured_.checkpoint;
  ranks.all_gather(all, own)->wait();
  Measured most;
  const double* each = all.const_data_ptr<double>();
  for (int rank = 0; rank < ranks.size(); ++rank, each += 3)
    most = {.tables = std::max(most.tables, each[0]),
            .fold = std::max(most.fold, each[1]),
            .checkpoint = std::max(most.checkpoint, each[2])};
  return most;
}

/// When the next save comes. The plan is drawn up in fractions of a step, and a save is at the nearest. All ranks call
/// it at the same steps.
void Cpr::plan(std::int64_t step) {
  const Measured measured = of_slowest();
  measured_ = {};
  knows_checkpoints_ = knows_checkpoints_ || measured.checkpoint > 0.0;
  if (measured.fold > 0.0) controller_->saved(cpr::Mode::full, measured.fold);
  if (measured.tables > 0.0) controller_->saved(cpr::Mode::partial, measured.tables);
  if (measured.checkpoint > 0.0) controller_->saved(cpr::Mode::full, measured.checkpoint);
  const cpr::Plan next = now(step);
  mode_ = next.mode;
  const bool full = mode_ == cpr::Mode::full;
  due_ = std::max(due_ + next.interval / (full ? 1 : turns_in_a_round()), static_cast<double>(step + 1));
  host().metric("cpr/interval", next.interval);
  host().metric("cpr/full", full);
  host().metric("cpr/save", full ? controller_->costs().save : controller_->costs().save_shard);
}

/// For a checkpoint, where all go back to it. Rank 0 does, which knows what one costs.
void Cpr::ask(StepContext& context) {
  const std::int64_t step = context.clock().step;
  if (!image_ || mode_ != cpr::Mode::full || step < std::llround(due_)) return;
  if (host().run().ranks->rank() == 0) context.request(Control::checkpoint, "all go back to it");
  plan(step);
}

void Cpr::safe_point(StepContext& context) {
  if (!image_) return;
  const double took = seconds_since(std::exchange(last_, SteadyClock::now()));
  step_seconds_ += (step_seconds_ == 0.0 ? 1.0 : 0.05) * (took - step_seconds_);
  const Clock& clock = context.clock();
  if (mode_ != cpr::Mode::partial || clock.step < std::llround(due_)) return;
  write(clock);
  last_ = SteadyClock::now();
}

void Cpr::take(Snapshot snapshot) {
  const auto began = SteadyClock::now();
  store_->commit(snapshot);
  last_ = SteadyClock::now();
  if (step_seconds_ > 0.0) measured_.checkpoint = seconds_since(began) / step_seconds_;
}

/// What survives this process.
void Cpr::remember() const {
  cpr::replace_file(folder(), "losses.json", Json::object({{"losses", log_}}).dump());
}

/// What this rank goes by, for those that cannot know it.
Json Cpr::figures() const {
  const cpr::Costs& costs = controller_->costs();
  return {{"costs", {costs.save, costs.save_shard, costs.load, costs.load_shard, costs.reschedule}},
          {"losses", log_},
          {"pls", pls()},
          {"saved", saved_samples_},
          {"step_seconds", step_seconds_},
          {"knows_checkpoints", knows_checkpoints_}};
}

void Cpr::take_figures(const Json& figures) {
  const auto costs = figures.at("costs").get<std::array<double, 5>>();
  figures.at("losses").get_to(log_);
  figures.at("pls").get_to(pls_before_);
  figures.at("saved").get_to(saved_samples_);
  figures.at("step_seconds").get_to(step_seconds_);
  figures.at("knows_checkpoints").get_to(knows_checkpoints_);
  measured_ = {};
  count({.save = costs[0],
         .save_shard = costs[1],
         .load = costs[2],
         .load_shard = costs[3],
         .reschedule = costs[4]});
}

/// Into the tables and the optimizer. Gives the bytes. Where there is none, rows are as they were drawn, which is
/// what step 0 has.
std::int64_t Cpr::load_image(std::int64_t step) {
  const at::NoGradGuard no_grad;
  image_.emplace(folder());
  if (image_->empty()) return 0;
  const std::vector<cpr::ShardTable> tables = image_->load_whole();
  if (const std::string& damage = image_->damage(); !damage.empty())
    host().log(LogLevel::warning,
               damage + "; the image before it is loaded, of step " + std::to_string(image_->base_step()));
  if (image_->step() > step)
    throw DataError(folder() + ": the image is of step " + std::to_string(image_->step()) +
                    ", and the run stands at step " + std::to_string(step) +
                    ": it was resumed from before that; resume it again");
  std::int64_t bytes = 0;
  for (const cpr::ShardTable& saved : tables) {
    const auto own = std::ranges::find(tables_, saved.name, &OwnRows::name);
    if (own == tables_.end()) throw DataError(folder() + ": the model has no table " + saved.name);
    for (auto& [name, values] : own->values) {
      const auto found = saved.values.find(name);
      if (found == saved.values.end() || found->second.sizes() != values.sizes())
        throw DataError(folder() + ": " + name + " of " + saved.name + " is not as the run has it");
      values.copy_(found->second);
      bytes += static_cast<std::int64_t>(values.nbytes());
    }
  }
  priorities_->take_all(weights());
  return bytes;
}

/// The ranks go on by the figures of the first that was not lost, and by what the images of the new processes are of.
void Cpr::replaced(const Replacement& what, Network& network, Optimizer& optimizer) {
  Ranks& ranks = *host().run().ranks;
  const bool is_new = std::ranges::find(what.ranks, ranks.rank()) != what.ranks.end();
  if (tables_.empty()) find_tables(network, optimizer);
  if (tables_.empty()) return;
  if (!controller_) count_run(what.step);
  const auto began = SteadyClock::now();
  const std::int64_t bytes = is_new ? load_image(what.step) : 0;
  Json own = figures();
  own["image"] = is_new ? Json(image_->base_step()) : Json();
  own["load"] = seconds_since(began);
  own["seconds"] = what.seconds;
  std::vector<Json> all;
  for (const std::string& each : gather(ranks, own.dump())) all.push_back(Json::parse(each));
  const auto survivor =
      std::ranges::find_if(all, [](const Json& each) { return each.at("image").is_null(); });
  take_figures(*survivor);
  if (now(what.step).mode == cpr::Mode::full) {
    log_.push_back({what.step, pls()});
    if (image_) remember();
    throw DistributedError(
        "a rank was lost, and it is cheaper, or loses less, that all go back to the last "
        "checkpoint (portion of lost samples so far: " +
        std::to_string(pls()) + ", checkpoint.target_pls is " + std::to_string(options_.target_pls) +
        "): resume the run");
  }
  std::int64_t lost = 0, replaced = 0;
  double load = 0.0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].at("image").is_null()) continue;
    const std::int64_t behind = what.step - all[rank].at("image").get<std::int64_t>();
    saved_samples_[rank] = what.samples - behind * scale_.samples_per_step;
    losses_->saved(rank, saved_samples_[rank]);
    lost += losses_->failed(rank, what.samples);
    load = std::max(load, all[rank].at("load").get<double>());
    ++replaced;
  }
  log_.push_back({what.step, pls()});
  const auto in_steps = [&](double seconds, double unknown) {
    return step_seconds_ > 0.0 ? seconds / step_seconds_ : unknown;
  };
  controller_->failed(cpr::Mode::partial, in_steps(load, controller_->costs().load_shard),
                      in_steps(survivor->at("seconds"), controller_->costs().reschedule));
  turn_ = 0;  // rounds of the ranks begin together
  stalled_ = 0.0;
  rows_written_ = 0;
  if (!image_ || image_->empty()) write_base(what.step);
  due_ = static_cast<double>(what.step);
  plan(what.step);
  remember();
  last_ = SteadyClock::now();
  host().journal("partial_recovery", std::to_string(bytes) + " bytes of the tables loaded; " +
                                         std::to_string(lost) + " samples lost by the rows of " +
                                         std::to_string(replaced) + " of " + std::to_string(ranks.size()) +
                                         " ranks; portion of lost samples " + std::to_string(pls()));
  host().metric("cpr/pls", pls());
}

}  // namespace

TRAINYARD_PLUGIN(Cpr)
