// Co-matrix row dropout (Thakker et al., "Doping", MLSys 2021): where a weight is a sum W = W1 + W2, rows of the terms
// are silenced during training, so that neither leans on the other: y_i = b1_i / (1 - p1) (W1 x)_i + b2_i / (1 - p2) (W2 x)_i
// with b ~ Bernoulli(1 - p). The bits of a step hold for its whole batch and all time steps.
#include <cmath>
#include <optional>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/co_matrix.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/random.hpp>

namespace {

using namespace trainyard;

class CoMatrixDropout final : public Hook {
 public:
  struct Options {
    double p_sparse = 0.3;
    double p_structured = 0.0;
    std::string granularity = "row";
    Duration until{80.0, Duration::Unit::percent};
    std::int64_t seed = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("co_matrix")
        .version("1.0.0")
        .summary("Silences rows of the terms of weights that are sums, in training.");
    m.needs("summed_weights").needs("model").needs("no members").needs("steps");
    m.option("p_sparse", &Options::p_sparse, "probability that a row of a sparse term is silent")
        .min(0.0)
        .below(1.0);
    m.option("p_structured", &Options::p_structured, "probability that a row of another term is silent")
        .min(0.0)
        .below(1.0);
    m.option("granularity", &Options::granularity, "what is silenced at a time: a row, or the whole matrix")
        .one_of({"row", "matrix"});
    m.option("until", &Options::until, "from when on nothing is silenced any more");
    m.option("seed", &Options::seed, "another number gives other rows").min(0);
    m.hook<&CoMatrixDropout::check>(Event::model_ready);
    m.hook<&CoMatrixDropout::check>(Event::swap_in);
    // The scales of a step are hyperparameters of it: constants of the graph, in no other region.
    m.hook<&CoMatrixDropout::draw>(Event::batch_start).writes(Region::hyper);
    m.hook<&CoMatrixDropout::restore>(Event::batch_end);
  }
  explicit CoMatrixDropout(const Options& options) : options_(options) {}

  void check(StepContext& context) {
    if (co_matrices(*context.network().graph()).empty())
      throw ConfigError(
          "no weight of the network is a sum of terms: a transform such as doped makes such weights, "
          "[[transforms]] type = \"doped\"");
    if (!options_.until.steps(context.scale()))
      throw ConfigError("until = \"" + options_.until.text() +
                        "\" cannot be counted in steps in this run: write it in ep, ba or sp");
  }

  /// Outside of a step all scales are 1, so that nothing that is saved or evaluated has silent rows.
  void draw(StepContext& context) {
    const std::int64_t step = context.clock().step;
    if (step >= *options_.until.steps(context.scale())) return;
    for (const CoMatrix& each : co_matrices(*context.network().graph()))
      fill(each,
           RandomStream(static_cast<std::uint64_t>(options_.seed), "co_matrix/" + each.term,
                        static_cast<std::uint64_t>(step)),
           each.term.ends_with(".sparse") ? options_.p_sparse : options_.p_structured);
  }

  void restore(StepContext& context) {
    for (const CoMatrix& each : co_matrices(*context.network().graph())) fill(each, {}, 0.0);
  }

 private:
  /// Writes 1 / (1 - p) or 0 for each row.
  void fill(const CoMatrix& term, const std::optional<RandomStream>& random, double p) const {
    const at::AutoDispatchBelowAutograd untracked;
    const auto alive = static_cast<std::int32_t>(std::lround(row_scale_one / (1.0 - p)));
    at::Tensor scales = at::empty(term.scales.sizes(), term.scales.options().device(at::kCPU));
    auto* const rows = scales.mutable_data_ptr<std::int32_t>();
    for (std::int64_t i = 0; i < scales.numel(); ++i) {
      const auto draw = static_cast<std::uint64_t>(options_.granularity == "matrix" ? 0 : i);
      rows[i] = p > 0.0 && random->uniform(draw) < p ? 0 : alive;
    }
    at::Tensor(term.scales).copy_(scales);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(CoMatrixDropout)
