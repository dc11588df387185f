// Finds rows of a table, or samples of a run, that are unlike the others: many outlier detectors as one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <trainyard/data_tool.hpp>
#include <trainyard/host.hpp>

#include "launches.hpp"
#include "lib/fnv1a.hpp"
#include "lib/printed.hpp"
#include "parts.hpp"
#include "plugged_in.hpp"
#include "pool_file.hpp"
#include "rates.hpp"
#include "scores_file.hpp"
#include "table.hpp"

template <>
struct trainyard::Words<screen::ProjectionMethod> {
  static constexpr std::string_view words[] = {"basic", "discrete", "circulant", "toeplitz", "none"};
};
template <>
struct trainyard::Words<screen::Combination> {
  static constexpr std::string_view words[] = {"average", "max", "aom", "moa"};
};

namespace {

using namespace trainyard;
using namespace screen;

constexpr const char* version = "1.1.0";

class Screen final : public DataTool {
 public:
  struct Options {
    std::string file, pool_file, save, out, label, share, launch;
    std::size_t machines = 0;
    std::vector<std::string> ignore;
    std::vector<std::string> pool = {"knn:5", "lof:20", "hbos:10", "iforest:100",
                                     "copod", "ecod",   "cblof:8", "ocsvm"};
    PluginList<trainyard::Detector> detectors;
    std::optional<double> contamination;
    std::optional<Combination> combination;
    bool standardize = true;
    ProjectionMethod projection = ProjectionMethod::basic;
    double target_dim_frac = 2.0 / 3.0;
    std::size_t min_dim = 20;
    std::vector<std::string> approximate = {"knn", "lof", "ocsvm"};
    std::size_t trees = 50, workers = 0;
    std::uint64_t seed = 0;
  };
  static void describe(Manifest<Options>& m);
  explicit Screen(const Options& options) : options_(options) {}

  Report run_on_data(DataWorkshop& shop) override;

 private:
  NumberTable read_rows(DataWorkshop& shop);
  NumberTable read_samples(DataWorkshop& shop);
  Work work_of(DataWorkshop& shop, const char* what);
  void check_shares() const;
  void have_shares_fitted(DataWorkshop& shop, const Parts& before, std::size_t detectors);
  Report fit_share(DataWorkshop& shop, const NumberTable& table, Parts& before, Pool& pool);
  Pool::Outcome fit(DataWorkshop& shop, const NumberTable& table, Parts& before, SavedPool& saved);
  void tell_failures(const Parts& before, const Pool::Outcome& outcome);
  std::string key_of(const NumberTable& table) const;
  void tell_odd_columns(const NumberTable& table);
  void tell(const std::string& text) { host().log(LogLevel::warning, text); }
  /// Returns where scores are written; makes the tool's folder if it is there. Throws DataError where there is no folder.
  std::string place_of_scores() const;
  Scored scored_of(const SavedPool& saved, std::vector<std::vector<double>> standard) const;
  static void add_facts(Report& report, const SavedPool& saved, const Scored& scored,
                        const NumberTable& table);

  Options options_;
  std::atomic<bool> stop_ = false;
};

void Screen::describe(Manifest<Options>& m) {
  m.name("screen").version(version).summary(
      "Finds rows that are unlike the others, by many outlier detectors as one.");
  m.option("file", &Options::file,
           "CSV file, plain or .gz: a row a line, of which the columns of numbers are compared; empty: the "
           "inputs of the "
           "run's training split. `trainyard screen rows.csv` sets it")
      .file();
  m.option("pool", &Options::pool,
           "detectors, each with its number if it has one: knn:K, knn_mean:K, lof:K, abod:K, hbos:BINS, "
           "iforest:TREES, "
           "copod, ecod, ecod_sums, cblof:CLUSTERS, ocsvm:NU, pca");
  m.option("detectors", &Options::detectors,
           "detectors that are plugins, beside those of pool: [{ type = \"NAME\" }]");
  m.option("out", &Options::out,
           "CSV file to write: row, score, outlier, weight, and the standard score of each detector; empty: "
           "scores.csv in the tool's "
           "folder below the run");
  m.option("save", &Options::save, "file to write the fitted pool to, for pool_file; empty: none");
  m.option("pool_file", &Options::pool_file,
           "a pool that was saved: the rows are scored by it as new ones, and nothing is fitted; empty: none")
      .file();
  m.option("ignore", &Options::ignore, "columns that are left out, by name, or by place from 1");
  m.option("label", &Options::label,
           "column of 0 and 1 (an outlier) that is no feature: the report then says how well each detector "
           "finds them; "
           "empty: none");
  m.option("contamination", &Options::contamination,
           "share of the rows it is fitted to whose score is above the threshold; where it is absent 0.1, or "
           "what the pool "
           "was saved with")
      .above(0.0)
      .below(1.0);
  m.option("combination", &Options::combination,
           "one score of all: average, max, average of the maximum in five groups (aom), maximum of their "
           "averages (moa); "
           "where it is absent average, or what the pool was saved with");
  m.option("standardize", &Options::standardize, "columns are scaled to mean 0 and deviation 1 first");
  m.option("projection", &Options::projection,
           "random projection of what knn, knn_mean, lof and abod see, one for each of them");
  m.option("target_dim_frac", &Options::target_dim_frac, "share of the columns that a projection leaves")
      .above(0.0)
      .max(1.0);
  m.option("min_dim", &Options::min_dim, "with fewer columns nothing is projected").min(1);
  m.option("approximate", &Options::approximate,
           "detectors by name whose scoring of new rows a random forest takes over, which learns the scores "
           "of the rows that "
           "they were fitted to; it is for those that are slow to score with");
  m.option("trees", &Options::trees, "of such a forest").range(1, 100'000);
  m.option(
      "share", &Options::share,
      "\"2/4\": fits the detectors of the second of four shares and keeps them beside the scores, for the "
      "same command without it to join, and launch starts nothing; empty: the whole screening");
  m.option("launch", &Options::launch,
           "has each share fitted on another machine that has the same folders, and joins them: \"srun -N1 "
           "{command}\", \"ssh node{number} {command}\", where {number} is that of the share; empty: all is "
           "fitted here");
  m.option("machines", &Options::machines, "shares that launch starts; 0: there is no launch").max(1024);
  m.option("workers", &Options::workers, "threads; 0: one a processor").max(1024);
  m.option("seed", &Options::seed, "of projections, forests and centres")
      .max(9007199254740991.0);  // a file of a pool has it as a double
}

/// Runs on the host's threads; the loop thread shows progress and hears of signals.
Work Screen::work_of(DataWorkshop& shop, const char* what) {
  Work work;
  work.workers = options_.workers > 0 ? options_.workers : std::max(1U, std::thread::hardware_concurrency());
  work.start = [this, what](std::function<void()> run) {
    return host().thread(what, [run = std::move(run)](const std::stop_token&) { run(); });
  };
  work.watch = [this, &shop](std::size_t done, std::size_t total) {
    shop.progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
    if (shop.stopping()) stop_ = true;
  };
  work.stopping = [this] { return stop_.load(); };
  return work;
}

NumberTable Screen::read_rows(DataWorkshop& shop) {
  if (options_.file.empty()) return read_samples(shop);
  NumberTable table =
      read_table(options_.file, {options_.ignore, options_.label}, [&] { return shop.stopping(); });
  if (!table.texts.empty()) {
    std::string names;
    for (const std::string& name : table.texts) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    tell("columns of text are left out: " + names);
  }
  return table;
}

/// Reads the inputs of the samples that the run trains on, a row a sample.
NumberTable Screen::read_samples(DataWorkshop& shop) {
  if (!options_.ignore.empty() || !options_.label.empty())
    throw ConfigError("ignore and label name columns of a file: a run's samples have none; give a CSV file");
  const Dataset& dataset = shop.dataset("train");
  NumberTable table;
  table.samples = shop.open("train");
  table.all = dataset.size();
  const BatchSchema schema = dataset.schema();
  std::size_t columns = 0;
  for (const FieldSchema& field : schema.inputs) {
    if (field.rows != Rows::sample || field.cardinality > 0 || schema.vocabulary > 0)
      throw ConfigError("input \"" + field.name +
                        "\" of the run's data holds ids or has no row of its own a sample: "
                        "expected numbers; give a CSV file of features");
    std::size_t size = 1;
    for (const std::int64_t extent : field.shape) size *= static_cast<std::size_t>(extent);
    columns += size;
  }
  const std::size_t rows = table.samples.size();
  table.numbers = Matrix(rows, columns);
  for (std::size_t j = 0; j < columns; ++j) table.names.push_back("input " + std::to_string(j + 1));
  constexpr std::size_t at_once = 256;
  for (std::size_t first = 0; first < rows && !shop.stopping(); first += at_once) {
    const auto indices =
        std::span<const std::int64_t>(table.samples).subspan(first, std::min(at_once, rows - first));
    const Batch batch = dataset.read(indices, {host().random("rows"), static_cast<std::int64_t>(first), 0});
    std::size_t column = 0;
    for (const at::Tensor& input : batch.inputs) {
      const at::Tensor flat = input.to(at::kDouble).reshape({std::ssize(indices), -1}).contiguous();
      const auto width = static_cast<std::size_t>(flat.size(1));
      for (std::size_t i = 0; i < indices.size(); ++i)
        std::copy_n(flat.const_data_ptr<double>() + i * width, width,
                    table.numbers.row(first + i).data() + column);
      column += width;
    }
    shop.progress(static_cast<std::int64_t>(first), static_cast<std::int64_t>(rows));
  }
  for (const double value : table.numbers.values)
    if (!std::isfinite(value))
      throw DataError("the run's training split has an input that is not finite: mend the data");
  return table;
}

void Screen::tell_odd_columns(const NumberTable& table) {
  std::string names;
  std::size_t constant = 0;
  for (std::size_t j = 0; j < table.numbers.columns; ++j) {
    const std::vector<double> values = table.numbers.column(j);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    if (*least != *most) continue;
    if (++constant <= 5) names += (names.empty() ? "\"" : ", \"") + table.names[j] + "\"";
  }
  if (constant == table.numbers.columns)
    throw DataError("all " + std::to_string(constant) + " columns are constant: no row is unlike another");
  if (constant > 0)
    tell(std::to_string(constant) + " of " + std::to_string(table.numbers.columns) +
         " columns are constant and tell rows apart by nothing: " + names + (constant > 5 ? ", ..." : ""));
}

/// Returns a digest of all that the scores depend on.
std::string Screen::key_of(const NumberTable& table) const {
  lib::Fnv1a key;
  for (const auto* words : {&table.names, &options_.pool, &options_.approximate}) {
    for (const std::string& word : *words) key.update(word).update("\n");
    key.update("\n");
  }
  for (const double number : {static_cast<double>(options_.projection), options_.target_dim_frac,
                              static_cast<double>(options_.min_dim), static_cast<double>(options_.trees),
                              static_cast<double>(options_.seed), options_.standardize ? 1.0 : 0.0,
                              options_.save.empty() ? 0.0 : 1.0})
    key.update(lib::shortest(number)).update(" ");
  const std::vector<double>& numbers = table.numbers.values;
  key.update({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)});
  return version + (" " + key.hex());
}

Pool::Outcome Screen::fit(DataWorkshop& shop, const NumberTable& table, Parts& before, SavedPool& saved) {
  tell_odd_columns(table);
  saved.columns = table.names;
  saved.contamination = options_.contamination.value_or(0.1);
  saved.combination = options_.combination.value_or(Combination::average);
  Pool::Outcome outcome = saved.pool.fit(table.numbers, work_of(shop, "fit"), &before);
  tell_failures(before, outcome);
  if (!before.unwritten().empty()) tell("a screening that is stopped cannot go on: " + before.unwritten());
  if (!outcome.unfinished.empty() && !saved.pool.members().empty()) {
    std::string names;
    for (const std::string& name : outcome.unfinished) names += (names.empty() ? "" : ", ") + name;
    tell("interrupted: the scores are those of the other detectors, without " + names +
         "; the same command goes on with those that took long");
  }
  return outcome;
}

void Screen::tell_failures(const Parts& before, const Pool::Outcome& outcome) {
  if (!before.complaint().empty()) tell(before.complaint());
  for (const Pool::Failure& failure : outcome.failures)
    tell(failure.name + " cannot be fitted and is left out: " + failure.reason);
}

void Screen::check_shares() const {
  if (!options_.share.empty()) parse_share(options_.share);
  if ((!options_.share.empty() || !options_.launch.empty()) && !options_.pool_file.empty())
    throw ConfigError("share and launch have detectors fitted, and with pool_file none is: leave them out");
  if (!options_.launch.empty() && options_.launch.find("{command}") == std::string::npos)
    throw ConfigError("launch = \"" + options_.launch +
                      "\" has no {command}: expected the place of the command, as \"srun -N1 {command}\"");
  if (!options_.launch.empty() && options_.machines == 0)
    throw ConfigError("launch needs machines: say how many shares it is to start, as --machines 4");
  if (options_.launch.empty() && options_.share.empty() && options_.machines > 0)
    throw ConfigError("machines needs launch, which starts their shares, as --launch \"srun -N1 {command}\"");
}

/// Has launchers start the shares, and waits for them. What they leave out is fitted here.
void Screen::have_shares_fitted(DataWorkshop& shop, const Parts& before, std::size_t detectors) {
  Launches launches({options_.launch, before.folder() + "/launch", own_command(), options_.machines},
                    [this](const std::string& text) { tell(text); });
  while (launches.go_on() && !stop_) {
    shop.progress(static_cast<std::int64_t>(before.count(detectors)), static_cast<std::int64_t>(detectors));
    stop_ = shop.stopping();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// Fits the detectors of this machine's share, for the command that joins all.
Report Screen::fit_share(DataWorkshop& shop, const NumberTable& table, Parts& before, Pool& pool) {
  const Share share = parse_share(options_.share);
  tell_odd_columns(table);
  const std::size_t own = pool.keep_share(share.number, share.of, table.numbers);
  Pool::Outcome outcome;
  if (own > 0) outcome = pool.fit(table.numbers, work_of(shop, "fit"), &before);
  tell_failures(before, outcome);
  if (!before.unwritten().empty())
    throw DataError("the share's detectors cannot be kept for the others: " + before.unwritten());
  Report report;
  report.facts = {{"share", share.text()},
                  {"folder", before.folder()},
                  {"rows", static_cast<std::int64_t>(table.numbers.rows)},
                  {"detectors", static_cast<std::int64_t>(pool.members().size())},
                  {"detectors fitted before", static_cast<std::int64_t>(outcome.known)}};
  report.columns = {"detector", "seconds"};
  for (const Pool::Member& member : pool.members()) report.rows.push_back({member.name, member.seconds});
  return report;
}

Scored Screen::scored_of(const SavedPool& saved, std::vector<std::vector<double>> standard) const {
  Scored scored;
  const Combination rule = options_.combination.value_or(saved.combination);
  for (const Pool::Member& member : saved.pool.members()) scored.detectors.push_back(member.name);
  scored.threshold = threshold_of(combined(saved.pool.fitted_scores(), rule),
                                  options_.contamination.value_or(saved.contamination));
  scored.standard = std::move(standard);
  scored.combined = combined(scored.standard, rule);
  return scored;
}

std::string Screen::place_of_scores() const {
  if (!options_.out.empty()) {
    const std::filesystem::path folder = std::filesystem::path(options_.out).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      throw DataError(options_.out + " cannot be written: there is no folder " + folder.string() +
                      "; make it");
    return options_.out;
  }
  const std::filesystem::path folder = std::filesystem::path(host().run().directory) / "tools/screen";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw DataError(folder.string() + ": cannot be made: " + error.message());
  return folder / "scores.csv";
}

void Screen::add_facts(Report& report, const SavedPool& saved, const Scored& scored,
                       const NumberTable& table) {
  std::int64_t outliers = 0;
  for (std::size_t i = 0; i < scored.combined.size(); ++i) outliers += scored.is_outlier(i) ? 1 : 0;
  report.facts = {{"rows", static_cast<std::int64_t>(scored.combined.size())},
                  {"columns", static_cast<std::int64_t>(saved.columns.size())},
                  {"detectors", static_cast<std::int64_t>(scored.detectors.size())},
                  {"outliers", outliers},
                  {"threshold", scored.threshold}};
  if (const std::int64_t aside = table.all - std::ssize(table.samples); aside > 0)
    report.facts.emplace_back("rows left aside", aside);
  const bool labelled = !table.labels.empty();
  if (labelled) report.facts.emplace_back("auc", area_under_curve(scored.combined, table.labels));
  report.columns = {"detector", "columns", "scores new rows by", "seconds"};
  if (labelled) report.columns.emplace_back("auc");
  for (std::size_t m = 0; m < scored.detectors.size(); ++m) {
    const Pool::Member& member = saved.pool.members()[m];
    report.rows.push_back({member.name, static_cast<std::int64_t>(member.columns),
                           member.approximated ? "forest" : "detector", member.seconds});
    if (labelled) report.rows.back().emplace_back(area_under_curve(scored.standard[m], table.labels));
  }
}

Report Screen::run_on_data(DataWorkshop& shop) {
  constexpr double worth_keeping = 0.1;  // seconds, where nobody waits for the detector
  const bool fits = options_.pool_file.empty(), shares = !options_.share.empty();
  check_shares();
  SavedPool saved;  // made ahead of the table, which may take long to read
  if (fits)
    saved.pool = Pool({options_.pool, options_.projection, options_.target_dim_frac, options_.min_dim,
                       options_.approximate, options_.trees, options_.seed, options_.standardize},
                      made_detectors(host(), options_.detectors));
  else
    saved = load_pool(options_.pool_file, made_detectors(host(), options_.detectors));
  const NumberTable table = read_rows(shop);
  if (shop.stopping()) return {};
  const std::string place = place_of_scores();
  Parts before(place + ".parts", fits ? key_of(table) : "", !options_.save.empty(),
               shares ? 0.0 : worth_keeping);
  if (shares) return fit_share(shop, table, before, saved.pool);
  Pool::Outcome outcome;
  std::vector<std::vector<double>> standard;
  const auto begin = std::chrono::steady_clock::now();
  if (fits) {
    if (!options_.launch.empty()) have_shares_fitted(shop, before, saved.pool.members().size());
    outcome = fit(shop, table, before, saved);
    standard = saved.pool.fitted_scores();
  } else {
    const std::string name = options_.file.empty() ? "the run" : options_.file;
    standard = saved.pool.score(pick_columns(table, saved.columns, name), work_of(shop, "score"));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (standard.empty()) return {};  // interrupted ahead of the first
  Scored scored = scored_of(saved, std::move(standard));
  scored.rows = table.samples;
  scored.all = table.all;
  write_scores(place, scored);
  if (fits && !options_.save.empty()) save_pool(options_.save, saved);
  if (outcome.unfinished.empty()) before.remove();
  Report report;
  add_facts(report, saved, scored, table);
  report.facts.insert(report.facts.begin(), {"file", place});
  report.facts.emplace_back("seconds", seconds);
  if (fits) {
    report.facts.emplace_back("makespan over bound",
                              outcome.bound > 0.0 ? outcome.shift.makespan / outcome.bound : 1.0);
    report.facts.emplace_back("detectors fitted before", static_cast<std::int64_t>(outcome.known));
    report.facts.emplace_back("tasks taken over", static_cast<std::int64_t>(outcome.shift.taken_over));
    if (!options_.save.empty()) report.facts.emplace_back("pool", options_.save);
  }
  return report;
}

}  // namespace

TRAINYARD_PLUGIN(Screen)
