#include "watch.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include <ATen/ops/empty.h>

#include <trainyard/error.hpp>

namespace step_screen {
namespace {

using namespace trainyard;

constexpr double rate = 1.0 / 16.0;       ///< of the trend: a row moves it by so much of its departure
constexpr std::int64_t settling = 16;     ///< rows until the trend is one
constexpr double least_deviation = 0.02;  ///< of a column: a change by 2 % is none

/// All tasks one after the other, on the thread that asks.
screen::Work here() {
  screen::Work work;
  work.start = [](const std::function<void()>& run) -> std::shared_ptr<void> {
    run();
    return nullptr;
  };
  return work;
}

at::Tensor tensor_of(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}
std::vector<double> values_of(const at::Tensor& tensor) {
  const double* const begin = tensor.const_data_ptr<double>();
  return {begin, begin + tensor.numel()};
}

}  // namespace

Watch::Watch(Options options) : options_(std::move(options)) {
  const screen::Pool tried({.detectors = options_.pool});
  for (const screen::Pool::Member& member : tried.members())
    if (member.spec.rows_needed() > options_.window)
      throw ConfigError(member.name + " needs " + std::to_string(member.spec.rows_needed()) +
                        " rows, and window is " + std::to_string(options_.window) + ": make it larger");
}

std::vector<double> Watch::standard(std::span<const double> residual) const {
  std::vector<double> values(residual.size());
  for (std::size_t j = 0; j < residual.size(); ++j) values[j] = (residual[j] - mean_[j]) / deviation_[j];
  return values;
}

Watch::Verdict Watch::look(const std::vector<double>& row) {
  Verdict verdict;
  const auto broken = std::ranges::find_if_not(row, [](double each) { return std::isfinite(each); });
  if (broken != row.end()) {
    verdict.odd = true;
    verdict.score = HUGE_VAL;
    verdict.column = static_cast<std::size_t>(broken - row.begin());
    verdict.departure = *broken;
    return verdict;
  }
  if (trend_.empty()) trend_ = row;
  std::vector<double> residual(row.size());
  for (std::size_t j = 0; j < row.size(); ++j) residual[j] = row[j] - trend_[j];
  if (pool_) {
    screen::Matrix one(1, residual.size());
    one.values = standard(residual);
    const double score = screen::combined(pool_->score(one, here()), screen::Combination::average).front();
    verdict.fitted = true;
    verdict.score = (score - middle_) / far_;
    const double least = std::log(options_.least);
    double most = -HUGE_VAL;
    for (std::size_t j = 0; j < residual.size(); ++j) {
      if (residual[j] < least || !(one.values[j] > most)) continue;
      most = one.values[j];
      verdict.column = j;
      verdict.departure = residual[j];
    }
    verdict.odd = verdict.score > options_.beyond && std::isfinite(most);
  }
  in_a_row_ = verdict.odd ? in_a_row_ + 1 : 0;
  if (in_a_row_ > static_cast<std::int64_t>(options_.patience)) {
    verdict.begins_anew = true;
    in_a_row_ = 0;
    accepted_ = static_cast<std::int64_t>(options_.patience);
    trend_ = row;
  }
  const bool accepts = accepted_ > 0;
  accepted_ -= accepts ? 1 : 0;
  if (!verdict.odd || accepts) learn(row, std::move(residual));
  return verdict;
}

void Watch::learn(const std::vector<double>& row, std::vector<double> residual) {
  for (std::size_t j = 0; j < row.size(); ++j) trend_[j] += rate * residual[j];
  if (++seen_ <= settling) return;
  window_.push_back(std::move(residual));
  if (window_.size() > options_.window) window_.pop_front();
  if (window_.size() < options_.window) return;
  if (pool_ && ++since_fit_ < static_cast<std::int64_t>(options_.refit)) return;
  since_fit_ = 0;
  screen::Matrix rows(window_.size(), row.size());
  for (std::size_t i = 0; i < window_.size(); ++i) std::ranges::copy(window_[i], rows.row(i).begin());
  fit(std::move(rows));
}

void Watch::fit(screen::Matrix rows) {
  fitted_ = std::move(rows);
  const auto count = static_cast<double>(fitted_.rows);
  mean_.assign(fitted_.columns, 0.0);
  deviation_.assign(fitted_.columns, 1.0);
  for (std::size_t j = 0; j < fitted_.columns; ++j) {
    const std::vector<double> column = fitted_.column(j);
    double squares = 0.0;
    for (const double each : column) mean_[j] += each / count;
    for (const double each : column) squares += (each - mean_[j]) * (each - mean_[j]) / count;
    deviation_[j] = std::max(least_deviation, std::sqrt(squares));
  }
  screen::Matrix rows_seen(fitted_.rows, fitted_.columns);
  for (std::size_t i = 0; i < fitted_.rows; ++i)
    std::ranges::copy(standard(fitted_.row(i)), rows_seen.row(i).begin());
  pool_.emplace(screen::PoolOptions{.detectors = options_.pool,
                                    .projection = screen::ProjectionMethod::none,
                                    .seed = options_.seed,
                                    .standardize = false});
  pool_->fit(rows_seen, here());
  const std::vector<double> scores = screen::combined(pool_->fitted_scores(), screen::Combination::average);
  middle_ = screen::threshold_of(scores, 0.5);
  const double far = *std::ranges::max_element(scores) - middle_;
  far_ = far > 0.0 ? far : 1.0;
}

void Watch::save(StateWriter& state) const {
  state.scalar("seen", seen_);
  state.scalar("since_fit", since_fit_);
  state.scalar("in_a_row", in_a_row_);
  state.scalar("accepted", accepted_);
  state.tensor("trend", tensor_of(trend_));
  std::vector<double> window;
  for (const std::vector<double>& row : window_) window.insert(window.end(), row.begin(), row.end());
  state.tensor("window", tensor_of(window));
  state.tensor("fitted", tensor_of(fitted_.values));
}

void Watch::load(const StateReader& state) {
  window_.clear();
  pool_.reset();
  fitted_ = {};
  seen_ = state.integer("seen");
  since_fit_ = state.integer("since_fit");
  in_a_row_ = state.integer("in_a_row");
  accepted_ = state.integer("accepted");
  trend_ = values_of(state.tensor("trend"));
  if (trend_.empty()) return;
  const std::vector<double> window = values_of(state.tensor("window"));
  screen::Matrix fitted;
  fitted.columns = trend_.size();
  fitted.values = values_of(state.tensor("fitted"));
  fitted.rows = fitted.values.size() / fitted.columns;
  for (auto row = window.begin(); row != window.end(); row += std::ssize(trend_))
    window_.emplace_back(row, row + std::ssize(trend_));
  while (window_.size() > options_.window) window_.pop_front();
  if (fitted.rows > 0) fit(std::move(fitted));
}

}  // namespace step_screen
