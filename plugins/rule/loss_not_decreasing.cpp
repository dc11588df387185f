// A loss that does not fall. Every `num_steps` it is held against the newest one that is at least so many
// steps older, not against its neighbour.
#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class LossNotDecreasing final : public Rule {
 public:
  struct Options {
    std::string tensors = "losses";
    std::int64_t num_steps = 10;
    double diff_percent = 0.1;
    std::string mode = "first";
  };
  static void describe(Manifest<Options>& m) {
    m.name("loss_not_decreasing").version("1.0.0").summary("The loss does not fall.");
    m.needs("losses where tensors = losses and mode = train");
    m.option("tensors", &Options::tensors, "collection or expression of the losses");
    m.option("num_steps", &Options::num_steps, "steps between two looks, and to the older loss at least")
        .min(1);
    m.option("diff_percent", &Options::diff_percent,
             "least fall, in percent of the older loss; 0: any fall will do")
        .min(0.0)
        .below(100.0);
    m.option("mode", &Options::mode, "whose losses; first: the first of eval, train, global that has any")
        .one_of({"first", "eval", "train", "global"});
  }
  explicit LossNotDecreasing(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }

  std::vector<Mode> modes() const override {
    if (options_.mode == "eval") return {Mode::eval};
    if (options_.mode == "train") return {Mode::train};
    if (options_.mode == "global") return {Mode::global};
    return {Mode::eval, Mode::train, Mode::global};
  }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const int rank = now.mode == Mode::eval ? 0 : now.mode == Mode::train ? 1 : 2;
    if (rank > best_rank_) return std::nullopt;
    if (rank < best_rank_) {
      losses_.clear();
      next_.clear();
    }
    best_rank_ = rank;
    Offenders offenders;
    for (const TensorRecord* loss : trial.tensors(now, options_.tensors))
      look(loss->name, now.mode_step, loss->scalar(), offenders);
    return offenders.finding(
        {{"num_steps", static_cast<double>(options_.num_steps)}, {"diff_percent", options_.diff_percent}});
  }

  void remember(StateWriter& state) const override {
    state.scalar("best_rank", best_rank_);
    rules::remember(state, "next", next_);
    ByTensor<std::vector<double>> flat;
    for (const auto& [name, points] : losses_)
      for (const Point& point : points)
        flat[name].insert(flat[name].end(), {static_cast<double>(point.step), point.loss});
    rules::remember(state, "losses", flat);
  }
  void recall(const StateReader& state) override {
    best_rank_ = state.integer("best_rank");
    next_ = recall_scalars<std::int64_t>(state, "next");
    losses_.clear();
    for (const auto& [name, flat] : recall_series<std::vector<double>>(state, "losses"))
      for (std::size_t i = 0; i + 1 < flat.size(); i += 2)
        losses_[name].push_back({static_cast<std::int64_t>(flat[i]), flat[i + 1]});
  }

 private:
  struct Point {
    std::int64_t step;
    double loss;
  };

  void look(const std::string& name, std::int64_t step, double loss, Offenders& offenders) {
    std::deque<Point>& points = losses_[name];
    points.push_back({step, loss});
    // What is older than the newest loss that is old enough is done with.
    while (points.size() > 1 && points[1].step <= step - options_.num_steps) points.pop_front();
    const Point& older = points.front();
    if (older.step > step - options_.num_steps) return;
    if (const auto next = next_.find(name); next != next_.end() && step < next->second) return;
    next_[name] = step + options_.num_steps;
    // Not by comparisons that NaN would pass: a loss that is no number has not fallen.
    const double fall = 100.0 * (older.loss - loss) / std::abs(older.loss);
    if (fall > 0.0 && fall >= options_.diff_percent) return;
    if (!std::isfinite(older.loss) && std::isfinite(loss)) return;
    offenders.add(
        name, -fall, fall,
        "it is " + five_digits(loss) + " at step " + std::to_string(step) + " and was " +
            five_digits(older.loss) + " at step " + std::to_string(older.step) + ", expected a fall of " +
            (options_.diff_percent == 0.0 ? "any size" : five_digits(options_.diff_percent) + " % at least"));
  }

  Options options_;
  std::int64_t best_rank_ = 2;
  ByTensor<std::deque<Point>> losses_;  ///< oldest first
  ByTensor<std::int64_t> next_;         ///< step from which on it is looked at again
};

}  // namespace

TRAINYARD_PLUGIN(LossNotDecreasing)
