// Hands the executor a batch that the network does not take, at events that every executor's steps and evaluations fire.
#include <trainyard/hook.hpp>

#include "misfeed.hpp"

namespace {

using namespace trainyard;

class Misfeeding final : public Hook {
 public:
  struct Options {
    std::string with = "doubles";
    std::int64_t step = 1;
    bool evaluations = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("misfeeding").version("1.0.0").summary("Hands over batches that the network does not take.");
    m.option("with", &Options::with, "what is wrong with them").one_of(misfeeds);
    m.option("step", &Options::step, "number of the first step whose batch, or whose evaluation, is such");
    m.option("evaluations", &Options::evaluations, "those of evaluations, in place of those of training");
    m.hook<&Misfeeding::batch_start>(Event::batch_start).writes(Region::batch);
    m.hook<&Misfeeding::eval_batch_start>(Event::eval_batch_start).writes(Region::batch);
  }
  explicit Misfeeding(const Options& options) : options_(options) {}

  void batch_start(StepContext& context) { feed(context, !options_.evaluations); }
  void eval_batch_start(StepContext& context) { feed(context, options_.evaluations); }

 private:
  void feed(StepContext& context, bool wanted) const {
    if (wanted && context.step_number() >= options_.step) misfeed(context.mutable_batch(), options_.with);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Misfeeding)
