// Says which steps of a training are unlike those before them, and in what: a row of numbers for each step (loss;
// gradient, weights and update of each layer, as logarithms), judged by outlier detectors on the last ones.
#include <cmath>
#include <optional>

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/ranks.hpp>

#include "lib/printed.hpp"
#include "norms.hpp"
#include "watch.hpp"

enum class Action : std::uint8_t { alert, skip_step };
template <>
struct trainyard::Words<Action> {
  static constexpr std::string_view words[] = {"alert", "skip_step"};
};

namespace {

using namespace trainyard;

/// Odd steps that are no more than so many steps apart are told of once: what an update did shows for a while.
constexpr std::int64_t one_event = 5;

/// Of norms, none of which is below 0.
double log_of(double norm) {
  return std::log(norm < 1e-30 ? 1e-30 : norm);  // of what is not finite: the same
}

class StepScreen final : public Hook {
 public:
  struct Options {
    std::vector<std::string> pool = {"knn:5", "lof:20", "pca"};
    std::size_t window = 256, refit = 64;
    double beyond = 1.0, least = 5.0;
    std::size_t patience = 10;
    std::int64_t sample = 16384;
    Action action = Action::alert;
  };
  static void describe(Manifest<Options>& m) {
    m.name("step_screen")
        .version("1.0.0")
        .summary("Says which steps are unlike those before them, and in which layer.");
    m.needs("grads").needs("losses").needs("no sharded_rows").needs("no members").needs("no grows");
    m.needs("no divides_network");
    m.option("pool", &Options::pool, "detectors of `trainyard screen` that judge a step, on average");
    m.option("window", &Options::window, "last steps that it is compared with; none is judged before")
        .range(32, 100'000);
    m.option("refit", &Options::refit, "steps after which the detectors are fitted to the window anew")
        .range(1, 1e6);
    m.option("beyond", &Options::beyond,
             "a step is odd if it is so many times as far out as the oddest of the window")
        .above(0.0);
    m.option("least", &Options::least, "and only if one of its numbers is so many times what it was")
        .min(1.0);
    m.option("patience", &Options::patience,
             "odd steps in a row, above which they are taken for how the training goes now")
        .range(1, 1e6);
    m.option("sample", &Options::sample,
             "elements of a parameter that norms are of, on the processor; 0: all")
        .min(0);
    m.option("action", &Options::action,
             "what becomes of an odd step: it is told, or its update is left out as well");
    m.hook<&StepScreen::find_layers>(Event::model_ready);
    m.hook<&StepScreen::find_layers>(Event::swap_in);
    m.hook<&StepScreen::add_loss>(Event::after_loss);
    m.hook<&StepScreen::judge>(Event::before_step).writes(Region::control).priority(60);
    m.hook<&StepScreen::measure_update>(Event::after_step);
    m.hook<&StepScreen::forget_loss>(Event::batch_end);
  }
  explicit StepScreen(const Options& options)
      : options_(options),
        watch_({.pool = options.pool,
                .window = options.window,
                .refit = options.refit,
                .beyond = options.beyond,
                .least = options.least,
                .patience = options.patience,
                .seed = 0}) {}

  void find_layers(StepContext& context) {
    norms_ = step_screen::Norms(context.network().parameters(), options_.sample);
    network_ = &context.network();
  }

  /// Of several ranks each sees the loss of its own part, and all are to judge the same.
  void add_loss(StepContext& context) {
    if (host().run().ranks != nullptr) return;
    const at::Tensor loss = at::mul(context.loss().detach(), context.loss_share());
    loss_ = loss_ ? at::add(*loss_, loss) : loss;
  }
  void forget_loss(StepContext&) { loss_.reset(); }

  void judge(StepContext& context) {
    if (context.repeats() > 0) return;
    if (&context.network() != network_) find_layers(context);
    const std::vector<double> gradients = norms_.of_gradients(), weights = norms_.of_weights();
    std::vector<double> row;
    if (loss_) row.push_back(log_of(std::abs(loss_->item<double>())));
    for (std::size_t i = 0; i < weights.size(); ++i)
      row.insert(row.end(), {log_of(gradients[i]), log_of(weights[i])});
    weights_ = weights;
    const bool whole = updates_.size() == weights.size();
    if (!whole) updates_.assign(weights.size(), 0.0);
    row.insert(row.end(), updates_.begin(), updates_.end());
    if (!whole && std::ranges::all_of(row, [](double each) { return std::isfinite(each); })) return;
    tell(context, watch_.look(row), loss_.has_value());
  }

  void measure_update(StepContext&) {
    if (weights_.empty()) return;
    const std::vector<double> changes = norms_.of_updates();
    updates_.resize(changes.size());
    for (std::size_t i = 0; i < changes.size(); ++i) updates_[i] = log_of(changes[i]) - log_of(weights_[i]);
  }

  void save(StateWriter& state) const override {
    watch_.save(state);
    state.scalar("odd_steps", odd_steps_);
    state.scalar("last_odd", last_odd_);
    for (std::size_t i = 0; i < updates_.size(); ++i)
      state.scalar("update/" + std::to_string(i), updates_[i]);
  }
  void load(const StateReader& state) override {
    watch_.load(state);
    odd_steps_ = state.integer("odd_steps");
    last_odd_ = state.integer("last_odd");
    updates_.clear();
    for (std::string name = "update/0"; state.has_scalar(name);
         name = "update/" + std::to_string(updates_.size()))
      updates_.push_back(state.number(name));
  }

 private:
  /// Returns the number of the row's column in words, and what its logarithm's departure means.
  std::string column_text(std::size_t column, bool has_loss) const {
    if (has_loss && column-- == 0) return "the loss";
    const std::size_t layers = norms_.layers().size();
    if (column >= 2 * layers) return "the update before, of " + norms_.layers()[column - 2 * layers];
    return (column % 2 == 0 ? "the gradient of " : "the weights of ") + norms_.layers()[column / 2];
  }

  void tell(StepContext& context, const step_screen::Watch::Verdict& verdict, bool has_loss) {
    if (verdict.fitted) host().metric("step_screen/score", verdict.score);
    if (!verdict.odd) return;
    ++odd_steps_;
    host().metric("step_screen/odd_steps", static_cast<double>(odd_steps_));
    const std::string column = column_text(verdict.column, has_loss);
    const bool finite = std::isfinite(verdict.score);
    std::string text = "step " + std::to_string(context.step_number()) + " is odd: " + column;
    text += finite
                ? lib::printed(
                      " is %.3g times what it was (%.1f times as far out as the oddest step of the window)",
                      std::exp(verdict.departure), verdict.score)
                : std::string(" is not finite");
    if (verdict.begins_anew)
      text += "; as were the steps before it: from here on they are what others are compared with";
    const bool skips = options_.action == Action::skip_step && !verdict.begins_anew;
    const bool goes_on = context.step_number() - last_odd_ <= one_event;
    last_odd_ = context.step_number();
    if (!goes_on || skips || verdict.begins_anew) {
      host().log(LogLevel::warning, text + (skips ? "; its update is left out" : ""));
      host().journal("odd_step", text);
    }
    if (skips) context.request(Control::skip_step, text);
  }

  Options options_;
  step_screen::Watch watch_;
  step_screen::Norms norms_;
  const Network* network_ = nullptr;
  std::optional<at::Tensor> loss_;  ///< of the step so far
  std::vector<double> weights_;     ///< norms ahead of the update
  std::vector<double> updates_;     ///< of the last update, as logarithms of shares of the weights
  std::int64_t odd_steps_ = 0, last_odd_ = -one_event - 1;
};

}  // namespace

TRAINYARD_PLUGIN(StepScreen)
