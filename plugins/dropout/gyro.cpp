// Gyro dropout (Lee et al., MLSys 2022): sigma sub-networks are drawn once. tau of them at
// a time are trained, each on its own slice of the batch, for a long stretch of steps; then the next tau.
// Each is trained steadily, so that they differ more and average better than those of dropout that is drawn
// anew at every step.
//
// A sub-network is one mask across all sites, and each is trained for as long as the others (draw =
// "partition"). The published code draws with replacement, for each site by itself, which leaves 37 % of the
// masks untrained and trains mixtures of the rest; that is an option.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/host.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class Gyro final : public Dropout {
 public:
  struct Options {
    std::int64_t sigma = 256;
    std::int64_t tau = 16;
    std::string draw = "partition";
    std::string scale = "nominal";
  };
  static void describe(Manifest<Options>& m) {
    m.name("gyro").version("1.0.0").summary("A bank of fixed masks, a few of which are trained at a time.");
    m.needs("steps");
    m.option("sigma", &Options::sigma, "masks in the bank").min(1);
    m.option("tau", &Options::tau,
             "masks that are trained together, each on its slice of the batch; at most sigma")
        .min(1);
    m.option(
         "draw", &Options::draw,
         "partition: every mask once before any comes again; replacement: any; per_site: any, for each site "
         "by itself")
        .one_of({"partition", "replacement", "per_site"});
    m.option("scale", &Options::scale, "what is kept is divided by: 1 - p, or the rate of the masks in use")
        .one_of({"nominal", "realised"});
    m.hook<&Gyro::fit_start>(Event::fit_start);
    m.hook<&Gyro::batch_start>(Event::batch_start);
  }
  explicit Gyro(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    if (options_.tau > options_.sigma)
      throw ConfigError("model.dropout.tau = " + std::to_string(options_.tau) + " masks of sigma = " +
                        std::to_string(options_.sigma) + " cannot be trained together; lower tau");
    if (options_.draw == "partition") order_ = permutation(host().random("order"));
    for (const DropoutSite& site : places.sites)
      sites_.push_back(
          {.axis = site.axis,
           .width = site.width,
           .bank = host().random("bank/" + site.id),
           .draws = host().random(options_.draw == "per_site" ? "draws/" + site.id : std::string("draws"))});
  }

  /// A stretch is what each mask gets of the steps that are left.
  void fit_start(StepContext& context) {
    start_ = context.clock().step;
    const std::int64_t left = context.scale().total_steps - start_;
    const std::int64_t share = left * options_.tau / options_.sigma;
    stretch_ = std::max<std::int64_t>(1, share);
    if (share == 0)
      host().log(LogLevel::warning, "the run has " + std::to_string(left) + " steps: too few for " +
                                        std::to_string(options_.sigma) + " masks, " +
                                        std::to_string(options_.tau) +
                                        " at a time; some are not trained. Lower model.dropout.sigma");
  }

  void batch_start(StepContext& context) { step_ = context.step_number() - 1; }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    const at::Tensor masks = masks_of(sites_[site], x.dim(), call.p).to(x.options().requires_grad(false));
    const std::int64_t rows = x.size(0), tau = options_.tau;
    if (rows % tau == 0) return at::mul(x.unflatten(0, {tau, rows / tau}), masks.unsqueeze(1)).flatten(0, 1);
    return at::mul(x, masks.index_select(0, slices(rows).to(x.device())));
  }

  void save(StateWriter& state) const override {
    state.scalar("start", start_);
    state.scalar("stretch", stretch_);
  }
  void load(const StateReader& state) override {
    start_ = state.integer("start");
    stretch_ = state.integer("stretch");
  }

 private:
  struct Site {
    std::int64_t axis, width;
    RandomStream bank, draws;
    std::int64_t round = -1;  ///< that `masks` is of
    double p = 0.0;           ///< the same
    at::Tensor masks;         ///< [tau, width]: 0, or what is kept is multiplied by
  };

  std::vector<std::int64_t> permutation(const RandomStream& stream) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(options_.sigma));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
    return order;
  }

  /// Number of the mask that slice `slice` has in a round.
  std::int64_t pick(const Site& site, std::int64_t round, std::int64_t slice) const {
    const std::int64_t place = round * options_.tau + slice;
    if (order_.empty())
      return static_cast<std::int64_t>(
          site.draws.below(static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(options_.sigma)));
    return order_[static_cast<std::size_t>(place % options_.sigma)];
  }

  /// The masks in use, broadcast to a tensor of so many dimensions. Drawn once a stretch.
  at::Tensor masks_of(Site& site, std::int64_t dims, double p) const {
    const std::int64_t round = (step_ - start_) / stretch_;
    if (round != site.round || p != site.p) {
      site.round = round;
      site.p = p;
      site.masks = at::empty({options_.tau, site.width}, at::kFloat);
      const auto width = static_cast<std::size_t>(site.width);
      for (std::int64_t slice = 0; slice < options_.tau; ++slice)
        site.bank.fill_mask({site.masks.mutable_data_ptr<float>() + slice * site.width, width}, 1.0 - p,
                            static_cast<std::uint64_t>(pick(site, round, slice)) * ((width + 3) / 4));
      // Kept units are 1 / (1 - p) so far: their mean is the realised rate over the nominal one.
      if (options_.scale == "realised") site.masks.div_(site.masks.mean().clamp_min(1e-6));
    }
    std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 1);
    shape.front() = options_.tau;
    shape[static_cast<std::size_t>(site.axis < 0 ? site.axis + dims : site.axis)] = site.width;
    return site.masks.view(shape);
  }

  /// The slice of each row: contiguous and within one of the same length. Fewer rows than slices take theirs
  /// in turn, from step to step.
  at::Tensor slices(std::int64_t rows) const {
    std::vector<std::int64_t> slices(static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row)
      slices[static_cast<std::size_t>(row)] =
          rows < options_.tau ? (step_ * rows + row) % options_.tau : row * options_.tau / rows;
    return at::tensor(slices);
  }

  Options options_;
  std::vector<Site> sites_;
  std::vector<std::int64_t> order_;  ///< of a partition
  std::int64_t step_ = 0;            ///< steps before the one that runs
  std::int64_t start_ = 0, stretch_ = 1;
};

}  // namespace

TRAINYARD_PLUGIN(Gyro)
