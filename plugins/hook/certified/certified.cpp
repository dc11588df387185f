// Certified accuracy as a metric of evaluations: of how many samples it is proven that no input within eps is of
// another class. The bounds are those of the verb gpupoly (Mueller et al., MLSys 2021), of the weights that the
// evaluation has.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <trainyard/context.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

#include <tool/gpupoly/ball.hpp>
#include <tool/gpupoly/bounds.hpp>
#include <tool/gpupoly/cases.hpp>

namespace {

using namespace trainyard;

class Certified final : public Hook {
 public:
  struct Options {
    double eps = 0.01;
    std::int64_t subset = 100;
    std::vector<double> mean, std, clip = {0.0, 1.0};
    gpupoly::Method method = gpupoly::Method::crown;
    int soundness = 3;
  };
  static void describe(Manifest<Options>& m) {
    m.name("certified").version("1.0.0").summary("Counts samples near which no other class is, by proof.");
    m.needs("fp32").needs("graph").conflicts("gpt").conflicts("lstm").conflicts("dlrm");
    m.needs("trainer.precision = fp32 where soundness = 3 | 4");
    // Whose proofs are not of convolutions by transforms: the other networks have none.
    m.needs("prefers executor.winograd = false where soundness = 3 | 4 and model.type != mlp | residual_mlp");
    m.needs("model.activation != gelu | selu | sigmoid | tanh");
    m.option("eps", &Options::eps, "largest change of an input, before the data's mean and std").min(0);
    m.option("subset", &Options::subset,
             "samples of a split, drawn by the run's seed, the same ones at each evaluation")
        .range(1, 1 << 20);
    m.option("mean", &Options::mean,
             "the data's, which it subtracts: one, one a channel or one an input; empty: 0");
    m.option("std", &Options::std, "the data's, by which it then divides; empty: 1");
    m.option("clip", &Options::clip,
             "smallest and largest input that there is, before mean and std; empty: any");
    m.option(
        "method", &Options::method,
        "intervals, one substitution of the output's forms, or of all that need it, which can take minutes");
    m.option("soundness", &Options::soundness,
             "what a proof is of: 1 nothing, bounds are rounded to nearest; 2 the real function of the "
             "weights; 3 "
             "also the single-precision program, sums in any order; 4 that in any rounding mode")
        .range(1, 4);
    m.hook<&Certified::check_run>(Event::model_ready);
    m.hook<&Certified::fit_start>(Event::fit_start);
    m.hook<&Certified::begin>(Event::eval_start);
    m.hook<&Certified::add_batch>(Event::eval_batch_end);
    // Before averages of weights give their place back.
    m.hook<&Certified::report>(Event::eval_end).priority(10);
  }
  explicit Certified(const Options& options) : options_(options) {}

  /// Refuses networks and data that it has no bounds of, while the run is built: `trainyard validate` builds it, too.
  void check_run(StepContext& context) {
    for (const Batch& batch : host().batches("train", 1)) check(batch, context.network().output_shape());
    ball_of(layers_of(context.network()));
  }

  void fit_start(StepContext& context) {
    const gpupoly::Layers layers = layers_of(context.network());
    host().log(LogLevel::info, "proofs hold of " + gpupoly::holds_of(layers, options_.soundness));
  }

  void begin(StepContext&) { drawn_.clear(); }

  /// Keeps the samples whose numbers, drawn for their index, are the smallest.
  void add_batch(StepContext& context) {
    const Batch& batch = context.batch();
    if (batch.weight <= 0.0) return;
    check(batch, context.output().sizes().slice(1));
    const RandomStream random = host().random(context.split());
    const at::Tensor guesses = context.output().argmax(1).cpu(),
                     labels = batch.target.to(at::kCPU, at::kLong);
    for (std::int64_t i = 0; i < labels.size(0); ++i) {
      const std::int64_t index = batch.indices[static_cast<std::size_t>(i)];
      const std::uint64_t number = random.bits(static_cast<std::uint64_t>(index));
      if (full() && number >= drawn_.rbegin()->number) continue;
      const std::int64_t label = labels[i].item<std::int64_t>();
      const bool right = guesses[i].item<std::int64_t>() == label;
      drawn_.insert({number, index, label, right, right ? batch.input()[i].cpu().clone() : at::Tensor()});
      if (static_cast<std::int64_t>(drawn_.size()) > options_.subset) drawn_.erase(std::prev(drawn_.end()));
    }
  }

  void report(StepContext& context) {
    if (drawn_.empty()) return;
    const gpupoly::Layers layers = layers_of(context.network());
    const gpupoly::Ball ball = ball_of(layers);
    gpupoly::Verifier verifier(layers, {.method = options_.method, .soundness = options_.soundness});
    const std::int64_t classes = layers.output().map.size();
    double right = 0.0, proven = 0.0;
    for (const Drawn& sample : drawn_) {
      if (!sample.right) continue;
      ++right;
      if (gpupoly::margin(verifier, ball.around(sample.input, sample.label, classes)) > 0.0) ++proven;
    }
    const auto metric = [&](const char* name, double count) {
      host().metric(std::string(context.split()) + "/cert_" + name,
                    count / static_cast<double>(drawn_.size()));
    };
    metric("acc", proven);
    metric("unknown", right - proven);
    drawn_.clear();
  }

 private:
  struct Drawn {
    std::uint64_t number;
    std::int64_t index, label;
    bool right;
    at::Tensor input;  ///< where it is right
    bool operator<(const Drawn& other) const {
      return std::pair(number, index) < std::pair(other.number, other.index);
    }
  };

  gpupoly::Layers layers_of(const Network& network) const {
    if (network.graph() == nullptr)
      throw ConfigError("hook certified reads a model as a graph, and this one has none; leave it out");
    gpupoly::require_single(network, options_.soundness);
    return gpupoly::layers_of(*network.graph());
  }

  gpupoly::Ball ball_of(const gpupoly::Layers& layers) const {
    return {options_.eps, options_.mean, options_.std, options_.clip, layers.input_shape};
  }

  bool full() const { return static_cast<std::int64_t>(drawn_.size()) == options_.subset; }

  /// `output`: the shape of what the network gives for a sample.
  static void check(const Batch& batch, at::IntArrayRef output) {
    if (!batch.target.defined() || batch.target.dim() != 1 || at::isFloatingType(batch.target.scalar_type()))
      throw ConfigError("hook certified counts classes, and the data has no class a sample; leave it out");
    if (output.size() != 1 || output.front() < 2)
      throw ConfigError(
          "hook certified needs an output for each class, [batch, classes]; give the model two or more");
    if (batch.inputs.size() != 1)
      throw ConfigError("hook certified bounds networks with one input, and the data has " +
                        std::to_string(batch.inputs.size()) + "; leave it out");
  }

  Options options_;
  std::set<Drawn> drawn_;  ///< by number
};

}  // namespace

TRAINYARD_PLUGIN(Certified)
