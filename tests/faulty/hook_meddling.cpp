// Changes what a step works with, as it declares: the inputs of its batches, or the numbers of the optimizer's groups.
#include <trainyard/hook.hpp>
#include <trainyard/optimizer.hpp>

#include "misfeed.hpp"

namespace {

using namespace trainyard;

class Meddling final : public Hook {
 public:
  struct Options {
    std::string with = "nothing";
    std::int64_t step = 1, group = -1;
    double factor = 0.5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("meddling").version("1.0.0").summary("Changes what a step works with.");
    m.option("with", &Options::with, "what").one_of(all_words());
    m.option("step", &Options::step, "number of the first step in which it does");
    m.option("group", &Options::group, "of the optimizer; -1: all");
    m.option("factor", &Options::factor, "on the learning rate, or on the weight decay");
    m.hook<&Meddling::before_forward>(Event::before_forward).writes(Region::batch);
    m.hook<&Meddling::before_step>(Event::before_step).writes(Region::hyper);
  }
  explicit Meddling(const Options& options) : options_(options) {}

  void before_forward(StepContext& context) {
    if (context.step_number() < options_.step) return;
    Batch& batch = context.mutable_batch();
    misfeed(batch, options_.with);
    if (options_.with != "1 to 50 rows") return;
    const std::int64_t rows = 1 + context.step_number() % 50;
    batch.inputs.front() = batch.inputs.front().narrow(0, 0, rows).contiguous();
    batch.target = batch.target.narrow(0, 0, rows).contiguous();
  }

  void before_step(StepContext& context) {
    if (context.step_number() < options_.step) return;
    std::vector<ParamGroup>& groups = context.optimizer().groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (options_.group >= 0 && static_cast<std::size_t>(options_.group) != g) continue;
      if (options_.with == "rate") groups[g].lr *= options_.factor;
      if (options_.with == "decay") groups[g].weight_decay = options_.factor * first_decay(groups[g], g);
    }
  }

 private:
  static std::vector<std::string> all_words() {
    std::vector<std::string> words = {"nothing", "1 to 50 rows", "rate", "decay"};
    words.insert(words.end(), misfeeds.begin(), misfeeds.end());
    return words;
  }
  /// The decay of a group stays as a hook leaves it.
  double first_decay(const ParamGroup& group, std::size_t number) {
    if (decays_.size() <= number) decays_.resize(number + 1, -1.0);
    if (decays_[number] < 0.0) decays_[number] = group.weight_decay;
    return decays_[number];
  }

  Options options_;
  std::vector<double> decays_;
};

}  // namespace

TRAINYARD_PLUGIN(Meddling)
