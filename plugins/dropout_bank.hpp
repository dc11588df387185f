// What gyro and blockwise share (Lee et al., "Gyro Dropout", MLSys 2022): a bank of sigma masks, each a
// sub-network. tau of them at a time are trained, each on its own slice of the batch, for a long stretch of
// steps; then the next tau.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/host.hpp>
#include <trainyard/state.hpp>

namespace trainyard {

struct BankOptions {
  std::int64_t sigma = 256;
  std::int64_t tau = 16;
  std::string draw = "partition";
  std::string scale = "nominal";

  template <class Options>  // these or some that have more
  static void describe(Fields<Options>& m) {
    m.option("sigma", &BankOptions::sigma, "masks in the bank").range(1, 1 << 24);
    m.option("tau", &BankOptions::tau,
             "masks that are trained together, each on its slice of the batch; at most sigma")
        .range(1, 1 << 16);
    m.option(
         "draw", &BankOptions::draw,
         "partition: every mask once before any comes again; replacement: any; per_site: any, for each site "
         "by itself")
        .one_of({"partition", "replacement", "per_site"});
    m.option("scale", &BankOptions::scale,
             "what is kept is divided by: 1 - p, or the rate of the masks in use")
        .one_of({"nominal", "realised"});
  }
};

/// The masks of a site that are in use.
struct SiteMasks {
  std::int64_t count = 0;  ///< tau; 1 for a sample
  std::vector<bool> kept;  ///< [mask][block]
  std::vector<std::vector<std::int32_t>>
      live;         ///< the numbers of blocks that each keeps; not of single units
  float scale = 1;  ///< what is kept is multiplied by
};

/// Rows [begin, end) of the batch, and which of the masks in use they have.
struct RowSlice {
  std::int64_t begin, end, mask;

  bool operator==(const RowSlice&) const = default;
};

/// The bank is not stored: mask k of a site is a function of the run's seed, the site and k. What is in use
/// depends on the step alone. A sample of an evaluation is one mask for all rows: sample k is the k-th that
/// is trained.
class MaskBank {
 public:
  /// Masks lie on blocks of so many units.
  MaskBank(const BankOptions& options, std::int64_t block) : options_(options), block_(block) {}

  void open(const std::vector<DropoutSite>& sites, Host& host) {
    if (options_.tau > options_.sigma)
      throw ConfigError("model.dropout.tau = " + std::to_string(options_.tau) + " masks of sigma = " +
                        std::to_string(options_.sigma) + " cannot be trained together; lower tau");
    if (options_.draw == "partition") order_ = permutation(host.random("order"));
    for (const DropoutSite& site : sites)
      sites_.push_back(
          {.place = site,
           .bank = host.random("bank/" + site.id),
           .draws = host.random(options_.draw == "per_site" ? "draws/" + site.id : std::string("draws"))});
  }

  /// At fit_start: a stretch is what each mask gets of the steps that are left.
  void start(const StepContext& context, Host& host) {
    start_ = context.clock().step;
    const std::int64_t left = context.scale().total_steps - start_;
    const std::int64_t share =
        left / options_.sigma * options_.tau + left % options_.sigma * options_.tau / options_.sigma;
    stretch_ = std::max<std::int64_t>(1, share);
    if (share == 0)
      host.log(LogLevel::warning, "the run has " + std::to_string(left) + " steps: too few for " +
                                      std::to_string(options_.sigma) + " masks, " +
                                      std::to_string(options_.tau) +
                                      " at a time; some are not trained. Lower model.dropout.sigma");
  }

  /// At micro_start: slices are of the whole batch of a step.
  void start_micro(const StepContext& context) { micros_ = context.micros(); }

  /// Each row with the mask of its slice.
  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) {
    if (x.size(0) == 0) return x;
    const at::Tensor masks = factors_like(x, site, call);
    const std::vector<RowSlice> cut = slices(x.size(0), site, call);
    const std::int64_t first = cut.front().mask, length = cut.front().end;
    std::int64_t count = 0;
    for (const RowSlice& slice : cut)
      count += slice.end - slice.begin == length && slice.mask == first + count;
    if (count == static_cast<std::int64_t>(cut.size()))  // of one length, their masks in order
      return at::mul(x.unflatten(0, {count, length}), masks.narrow(0, first, count).unsqueeze(1))
          .flatten(0, 1);
    std::vector<std::int64_t> of_rows;
    for (const RowSlice& slice : cut)
      of_rows.insert(of_rows.end(), static_cast<std::size_t>(slice.end - slice.begin), slice.mask);
    return at::mul(x, masks.index_select(0, at::tensor(of_rows).to(x.device())));
  }

  /// Drawn once a stretch.
  std::shared_ptr<const SiteMasks> masks(std::size_t site, const DropoutCall& call) {
    return current(sites_[site], call).masks;
  }

  /// Slices of a tensor with so many rows at a site, in the order of the rows. The batch of a step is cut
  /// into tau, within one sample of the same length, and a micro-batch has its part of them. Fewer samples
  /// than tau take masks in turn, from step to step.
  std::vector<RowSlice> slices(std::int64_t rows, std::size_t site, const DropoutCall& call) {
    if (call.pass.sampling) return {{0, rows, 0}};
    const std::int64_t each = sites_[site].place.rows, samples = rows / each, tau = options_.tau;
    const auto step = static_cast<std::int64_t>(call.pass.step), micro = std::int64_t{call.pass.micro};
    if (micro == 0) micro_samples_ = samples;  // the last of a step may have fewer
    const std::int64_t before = micro * micro_samples_;
    const std::int64_t batch = std::max(micros_, micro + 1) * micro_samples_;
    std::vector<RowSlice> slices;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t place = before + sample;
      const std::int64_t mask = batch < tau ? (step * batch + place) % tau : place * tau / batch;
      if (slices.empty() || slices.back().mask != mask)
        slices.push_back({sample * each, sample * each, mask});
      slices.back().end = (sample + 1) * each;
    }
    return slices;
  }

  void save(StateWriter& state) const {
    state.scalar("start", start_);
    state.scalar("stretch", stretch_);
  }
  void load(const StateReader& state) {
    start_ = state.integer("start");
    stretch_ = state.integer("stretch");
  }

 private:
  struct Site {
    DropoutSite place;
    RandomStream bank, draws;
    std::int64_t first = -1;  ///< place of the first of `masks` among all that are trained
    double p = 0.0;           ///< that they are drawn with
    std::shared_ptr<const SiteMasks> masks;
    at::Tensor placed;  ///< on a device, what units there are multiplied by
  };

  std::vector<std::int64_t> permutation(const RandomStream& stream) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(options_.sigma));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
    return order;
  }

  /// Number of the mask that is trained at a place: tau of them one after another at a time.
  std::int64_t pick(const Site& site, std::int64_t place) const {
    if (order_.empty())
      return static_cast<std::int64_t>(
          site.draws.below(static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(options_.sigma)));
    return order_[static_cast<std::size_t>(place % options_.sigma)];
  }

  Site& current(Site& site, const DropoutCall& call) const {
    const std::int64_t round = (static_cast<std::int64_t>(call.pass.step) - start_) / stretch_;
    const std::int64_t first = call.pass.sampling ? call.pass.micro : round * options_.tau;
    const std::int64_t count = call.pass.sampling ? 1 : options_.tau;
    if (site.masks && first == site.first && count == site.masks->count && call.p == site.p) return site;
    site.first = first;
    site.p = call.p;
    site.masks = std::make_shared<SiteMasks>(draw(site, count));
    site.placed.reset();
    return site;
  }

  std::int64_t blocks_of(const Site& site) const { return (site.place.width + block_ - 1) / block_; }

  SiteMasks draw(const Site& site, std::int64_t count) const {
    const std::int64_t blocks = blocks_of(site);
    SiteMasks masks{.count = count, .scale = static_cast<float>(1.0 / (1.0 - site.p))};
    std::vector<float> drawn(static_cast<std::size_t>(blocks));
    std::int64_t units = 0;
    for (std::int64_t slice = 0; slice < count; ++slice) {
      site.bank.fill_mask(drawn, 1.0 - site.p,
                          static_cast<std::uint64_t>(pick(site, site.first + slice)) *
                              static_cast<std::uint64_t>((blocks + 3) / 4));
      std::vector<std::int32_t> live;
      for (std::int32_t block = 0; block < blocks; ++block) {
        const bool kept = drawn[static_cast<std::size_t>(block)] != 0;
        masks.kept.push_back(kept);
        if (!kept) continue;
        live.push_back(block);
        units += std::min(block_, site.place.width - block * block_);
      }
      if (block_ > 1) masks.live.push_back(std::move(live));
    }
    if (options_.scale == "realised" && units > 0)
      masks.scale =
          static_cast<float>(static_cast<double>(count * site.place.width) / static_cast<double>(units));
    return masks;
  }

  /// What units are multiplied by, of the type and on the device of x: [masks, width].
  at::Tensor factors(Site& site, const at::Tensor& x) const {
    const at::TensorOptions options = x.options().requires_grad(false);
    if (site.placed.defined() && site.placed.options().type_equal(options)) return site.placed;
    at::Tensor result = at::empty({site.masks->count, site.place.width}, at::kFloat);
    auto* to = result.mutable_data_ptr<float>();
    auto kept = site.masks->kept.begin();
    for (std::int64_t slice = 0; slice < site.masks->count; ++slice)
      for (std::int64_t unit = 0; unit < site.place.width; unit += block_, ++kept)
        to = std::fill_n(to, std::min(block_, site.place.width - unit), *kept ? site.masks->scale : 0.0f);
    result = result.to(options);
    if (!x.is_cpu()) site.placed = result;
    return result;
  }

  /// The masks in use, broadcast to a tensor like x.
  at::Tensor factors_like(const at::Tensor& x, std::size_t index, const DropoutCall& call) {
    Site& site = current(sites_[index], call);
    const std::int64_t dims = x.dim(), axis = site.place.axis;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 1);
    shape.front() = site.masks->count;
    shape[static_cast<std::size_t>(axis < 0 ? axis + dims : axis)] = site.place.width;
    return factors(site, x).view(shape);
  }

  BankOptions options_;
  std::int64_t block_;
  std::vector<Site> sites_;
  std::vector<std::int64_t> order_;  ///< of a partition
  std::int64_t start_ = 0, stretch_ = 1;
  std::int64_t micros_ = 1, micro_samples_ = 0;  ///< of a step; of the first of them
};

}  // namespace trainyard
