#include "pool.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>
#include <utility>

#include <trainyard/error.hpp>

namespace screen {
namespace {

using trainyard::DataError;

/// Mean and deviation; those that are not finite are told by a mean that is not.
std::pair<double, double> moments(const std::vector<double>& values) {
  double mean = 0.0, square = 0.0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values)
    square += (value - mean) * (value - mean) / static_cast<double>(values.size());
  return {mean, std::sqrt(square)};
}

/// Standard scores; all 0 where the detector finds all rows alike.
void standardize_scores(std::vector<double>& scores, double mean, double deviation) {
  for (double& score : scores) score = deviation > 0.0 ? (score - mean) / deviation : 0.0;
}

/// Returns what the exception that is being handled says; never an empty text.
std::string reason_thrown() {
  try {
    throw;
  } catch (const std::exception& error) {
    if (std::string text = error.what(); !text.empty()) return text;
  } catch (...) {  // it has no words
  }
  return "it threw something without words";
}

void check_count(const std::vector<double>& scores, const Matrix& rows) {
  if (scores.size() == rows.rows) return;
  throw trainyard::PluginError("it gave " + std::to_string(scores.size()) + " scores for " +
                               std::to_string(rows.rows) + " rows");
}

}  // namespace

std::vector<double> combined(const std::vector<std::vector<double>>& scores, Combination rule) {
  constexpr std::size_t most_groups = 5;
  if (scores.empty()) return {};
  const std::size_t groups = rule == Combination::average ? 1
                             : rule == Combination::max   ? scores.size()
                                                          : std::min(most_groups, scores.size());
  std::vector<double> result(scores.front().size());
  for (std::size_t row = 0; row < result.size(); ++row) {
    std::vector<double> of_group(groups, rule == Combination::aom ? -HUGE_VAL : 0.0);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      double& group = of_group[i % groups];
      const std::size_t size = (scores.size() - i % groups + groups - 1) / groups;
      group = rule == Combination::aom ? std::max(group, scores[i][row])
                                       : group + scores[i][row] / static_cast<double>(size);
    }
    double sum = 0.0;
    for (const double group : of_group) sum += group / static_cast<double>(groups);
    result[row] = rule == Combination::aom ? sum : *std::max_element(of_group.begin(), of_group.end());
  }
  return result;
}

double threshold_of(std::vector<double> scores, double contamination) {
  std::sort(scores.begin(), scores.end());
  const double place = (1.0 - contamination) * static_cast<double>(scores.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= scores.size()) return scores.back();
  return scores[below] + (place - static_cast<double>(below)) * (scores[below + 1] - scores[below]);
}

Pool::Pool(PoolOptions options, std::vector<Given> given) : options_(std::move(options)) {
  for (const std::string& text : options_.detectors) add(parse_spec(text));
  for (Given& each : given) {
    GivenFamily& made = families_.emplace_back(GivenFamily{each.name, {}});
    made.family.name = made.name;
    made.family.cost = find_family("knn").cost;  // nobody knows; what is wrong is taken over
    add({&made.family, 0.0});
    members_.back().given = true;
    members_.back().options = std::move(each.options);
    members_.back().detector = std::move(each.detector);
  }
  for (const std::string& name : options_.approximate)
    if (std::ranges::find(given, name, &Given::name) == given.end()) find_family(name);
  if (members_.empty())
    throw trainyard::ConfigError(
        "pool names no detector: expected one at least, as [\"knn:5\", \"iforest\"]");
}

void Pool::add(Spec spec) {
  Member member;
  member.spec = spec;
  member.number = members_.size();
  member.name = spec.text();
  const auto again =
      std::ranges::count(members_, member.name, [](const Member& each) { return each.spec.text(); });
  if (again > 0) member.name += " (" + std::to_string(again + 1) + ")";
  members_.push_back(std::move(member));
}

void Pool::check_rows(const Matrix& rows) const {
  std::string too_few;
  for (const Member& member : members_)
    if (rows.rows < member.spec.rows_needed())
      too_few +=
          (too_few.empty() ? "" : ", ") + member.name + " needs " + std::to_string(member.spec.rows_needed());
  if (!too_few.empty())
    throw DataError("there are " + std::to_string(rows.rows) + " rows, which are too few: " + too_few +
                    "; give more rows, or a pool with smaller numbers");
}

Matrix Pool::standard(const Matrix& rows) const {
  Matrix result = rows;
  for (std::size_t i = 0; i < rows.rows; ++i)
    for (std::size_t j = 0; j < columns_; ++j) result.row(i)[j] = (rows.at(i, j) - mean_[j]) / deviation_[j];
  return result;
}

Fitting Pool::fitting_of(const Member& member, const char* purpose, const Work& work) const {
  const std::string owner = "screen/" + std::string(member.spec.family->name) + "/" + purpose;
  return {trainyard::RandomStream(options_.seed, owner, member.number), work.stopping};
}

Matrix Pool::seen_by(const Member& member, const Matrix& standard_rows) const {
  if (!member.projected) return standard_rows;
  return project(standard_rows, projection_matrix(options_.projection, columns_, member.columns,
                                                  fitting_of(member, "projection", {}).random));
}

void Pool::fit_member(Member& member, const Matrix& rows, const Work& work) const {
  const Matrix seen = seen_by(member, rows);
  if (!member.given) member.detector = member.spec.family->make(member.spec.parameter);
  member.scores = member.detector->fit(seen, fitting_of(member, "fit", work));
  check_count(member.scores, rows);
  std::tie(member.mean, member.deviation) = moments(member.scores);
  if (!std::isfinite(member.mean) || !std::isfinite(member.deviation))
    throw trainyard::NumericError("its scores are not finite");
  if (member.approximated) {
    member.forest = Forest(options_.trees);
    member.forest.fit(seen, member.scores, fitting_of(member, "forest", work));
    member.detector.reset();
  }
  standardize_scores(member.scores, member.mean, member.deviation);
}

void Pool::learn_columns(const Matrix& rows) {
  rows_ = rows.rows;
  columns_ = rows.columns;
  mean_.assign(columns_, 0.0);
  deviation_.assign(columns_, 1.0);
  for (std::size_t j = 0; j < columns_ && options_.standardize; ++j) {
    std::tie(mean_[j], deviation_[j]) = moments(rows.column(j));
    if (!std::isfinite(mean_[j]) || !std::isfinite(deviation_[j]))
      throw trainyard::NumericError("column " + std::to_string(j + 1) +
                                    " has numbers whose squares are too large to add up: scale it");
    // What is constant but for the rounding of its mean is constant.
    if (deviation_[j] <= 1e-14 * std::abs(mean_[j])) deviation_[j] = 1.0;
  }
}

/// Decides what the member sees of the columns, and whether a forest takes its place.
void Pool::shape(Member& member) const {
  member.projected = options_.projection != ProjectionMethod::none && columns_ >= options_.least_columns &&
                     member.spec.family->projects;
  member.columns = columns_;
  if (member.projected)
    member.columns = std::max<std::size_t>(
        1, static_cast<std::size_t>(options_.fraction * static_cast<double>(columns_) + 1e-9));
  member.approximated =
      std::ranges::find(options_.approximate, member.spec.family->name) != options_.approximate.end();
}

/// Returns the seconds that the fit of a member, which has its shape, will take.
double Pool::forecast(const Member& member, const Matrix& rows) const {
  return member.spec.family->cost.seconds(static_cast<double>(rows.rows),
                                          static_cast<double>(member.columns));
}

std::size_t Pool::keep_share(std::size_t number, std::size_t of, const Matrix& rows) {
  check_rows(rows);
  columns_ = rows.columns;
  std::erase_if(members_, [](const Member& each) { return each.given; });
  std::vector<double> costs;
  for (Member& member : members_) {
    shape(member);
    costs.push_back(forecast(member, rows));
  }
  std::vector<std::size_t> own = longest_first(costs, of)[number - 1];
  std::ranges::sort(own);
  std::vector<Member> kept;
  for (const std::size_t i : own) kept.push_back(std::move(members_[i]));
  members_ = std::move(kept);
  return members_.size();
}

Pool::Outcome Pool::fit(const Matrix& rows, const Work& work, FittedBefore* before) {
  check_rows(rows);
  learn_columns(rows);
  const Matrix table = standard(rows);
  std::vector<std::string> reasons(members_.size());
  std::vector<std::uint8_t> done(members_.size(), 0);
  std::vector<std::function<void()>> tasks;
  std::vector<double> costs;
  Outcome outcome;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const bool keeps = before != nullptr && !member.given;
    const std::size_t number = member.number;
    if (std::optional<Archive> found = keeps ? before->find(number) : std::nullopt) {
      keep_member(member, *found, "", before->models());
      found->enter("");
      found->number("seconds", member.seconds);
      done[i] = 1;
      ++outcome.known;
      continue;
    }
    shape(member);
    costs.push_back(forecast(member, rows));
    tasks.emplace_back(
        [this, &member, &table, &work, before, keeps, number, &reason = reasons[i], &finished = done[i]] {
          try {
            const auto begin = std::chrono::steady_clock::now();
            fit_member(member, table, work);
            member.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            finished = 1;
            if (!keeps || member.seconds < before->least_seconds()) return;
            Archive archive;
            keep_member(member, archive, "", before->models());
            archive.enter("");
            archive.number("seconds", member.seconds);
            before->add(number, archive);
          } catch (const Stopped&) {
          } catch (...) {
            reason = reason_thrown();
          }
        });
  }
  outcome.shift = run_balanced(tasks, costs, work);
  outcome.bound = outcome.shift.bound(work.workers);
  std::vector<Member> kept;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!reasons[i].empty())
      outcome.failures.push_back({members_[i].name, reasons[i]});
    else if (done[i] == 0)
      outcome.unfinished.push_back(members_[i].name);
    else
      kept.push_back(std::move(members_[i]));
  }
  members_ = std::move(kept);
  if (members_.empty() && outcome.unfinished.empty()) {
    std::string text;
    for (const Failure& each : outcome.failures)
      text += (text.empty() ? "" : "; ") + each.name + ": " + each.reason;
    throw trainyard::NumericError("no detector of the pool could be fitted: " + text);
  }
  return outcome;
}

std::vector<double> Pool::raw_scores(const Member& member, const Matrix& rows, const Work& work) const {
  const Matrix seen = seen_by(member, rows);
  const Fitting fitting = fitting_of(member, "score", work);
  if (member.approximated) return member.forest.predict(seen, fitting);
  std::vector<double> scores = member.detector->score(seen, fitting);
  check_count(scores, rows);
  if (!std::ranges::all_of(scores, [](double each) { return std::isfinite(each); }))
    throw trainyard::NumericError("its scores are not finite");
  return scores;
}

std::vector<std::vector<double>> Pool::score(const Matrix& rows, const Work& work) const {
  if (rows.columns != columns_)
    throw DataError("the rows have " + std::to_string(rows.columns) +
                    " columns, and the pool was fitted to " + std::to_string(columns_) +
                    ": give rows with the same columns, or fit a pool to these");
  constexpr std::size_t block = 2048;
  std::vector<std::vector<double>> scores(members_.size(), std::vector<double>(rows.rows));
  const Matrix table = standard(rows);
  std::vector<std::function<void()>> tasks;
  std::vector<double> costs;
  std::vector<std::string> reasons(members_.size());
  for (std::size_t m = 0; m < members_.size(); ++m)
    for (std::size_t first = 0; first < rows.rows; first += block) {
      const Member& member = members_[m];
      const std::size_t last = std::min(rows.rows, first + block);
      const double share = static_cast<double>(last - first) / static_cast<double>(rows_);
      costs.push_back(share *
                      (member.approximated ? find_family("iforest") : *member.spec.family)
                          .cost.seconds(static_cast<double>(rows_), static_cast<double>(member.columns)));
      tasks.emplace_back([&, m, first, last] {
        try {
          std::vector<double> part = raw_scores(members_[m], table.slice(first, last), work);
          standardize_scores(part, members_[m].mean, members_[m].deviation);
          std::copy(part.begin(), part.end(), scores[m].begin() + static_cast<std::ptrdiff_t>(first));
        } catch (const Stopped&) {
        } catch (...) {
          reasons[m] = reason_thrown();
        }
      });
    }
  run_balanced(tasks, costs, work);
  if (work.stopping && work.stopping()) return {};
  for (std::size_t m = 0; m < members_.size(); ++m)
    if (!reasons[m].empty())
      throw trainyard::NumericError(members_[m].name + " cannot score the rows: " + reasons[m]);
  return scores;
}

std::vector<std::vector<double>> Pool::fitted_scores() const {
  std::vector<std::vector<double>> scores;
  for (const Member& member : members_) scores.push_back(member.scores);
  return scores;
}

void Pool::keep(Archive& archive) {
  archive.enter("");
  archive.number("rows", rows_);
  archive.number("columns", columns_);
  archive.list("mean", mean_);
  archive.list("deviation", deviation_);
  auto method = static_cast<std::uint8_t>(options_.projection);
  archive.number("projection", method);
  if (method > static_cast<std::uint8_t>(ProjectionMethod::none)) archive.fail("projection", "is no method");
  options_.projection = static_cast<ProjectionMethod>(method);
  archive.number("seed", options_.seed);
  if (archive.loading() && (mean_.size() != columns_ || deviation_.size() != columns_))
    archive.fail("mean", "does not have one number a column");
  for (std::size_t m = 0; m < members_.size(); ++m)
    keep_member(members_[m], archive, std::to_string(m) + ".", true);
}

/// Reads or writes a member, below names that begin with `prefix`. Without `model` only its scores.
void Pool::keep_member(Member& member, Archive& archive, const std::string& prefix, bool model) {
  archive.enter(prefix);
  archive.number("number", member.number);
  archive.number("columns", member.columns);
  archive.number("projected", member.projected);
  archive.number("approximated", member.approximated);
  archive.number("mean", member.mean);
  archive.number("deviation", member.deviation);
  archive.list("scores", member.scores);
  if (archive.loading() && member.scores.size() != rows_)
    archive.fail("scores", "does not have one number a row");
  if (archive.loading() && (member.columns == 0 || member.columns > columns_))
    archive.fail("columns", "is no number of the pool's columns");
  if (!model) return;
  if (member.approximated) return member.forest.keep(archive, member.columns);
  if (archive.loading() && !member.given) member.detector = member.spec.family->make(member.spec.parameter);
  archive.enter(prefix + "detector.");
  member.detector->keep(archive);
}

}  // namespace screen
