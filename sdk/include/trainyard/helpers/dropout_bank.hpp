// The bank that gyro and blockwise share (Lee et al., "Gyro Dropout", MLSys 2022): it has sigma masks, each a
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

#include <ATen/ops/zeros.h>

#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/host.hpp>
#include <trainyard/state.hpp>

#include <trainyard/helpers/dropout_slices.hpp>

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

/// The blocks of the masks of a site that are in use.
struct SiteMasks {
  std::vector<std::vector<std::int32_t>> live;  ///< numbers of the blocks that each mask keeps
  float scale = 1;                              ///< factor on kept activations
};

/// Holds the masks of all sites. The bank is not stored: mask k of a site is a function of the run's seed,
/// the site and k. The masks in use depend on the step alone. A sample of an evaluation is one mask for all
/// rows: sample k is the k-th mask that is trained.
class MaskBank {
 public:
  /// Masks are drawn for blocks of `block` units.
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

  /// Called at fit_start: sets the stretch, each mask's share of the steps that are left.
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

  /// Multiplies each row by the mask of its slice.
  at::Tensor apply(const at::Tensor& x, std::size_t index, const DropoutCall& call) {
    if (x.size(0) == 0) return x;
    Site& site = current(sites_[index], call);
    site.units.bits = site.units.bits.to(x.device());  // where they stay
    return masked(x, site.units, slices(x.size(0), index, call));
  }

  /// Returns the masks in use, which are drawn once a stretch. Not for masks on single units.
  std::shared_ptr<const SiteMasks> masks(std::size_t site, const DropoutCall& call) {
    return current(sites_[site], call).masks;
  }

  /// Returns the slices of a tensor with so many rows at a site, in the order of the rows. The batch of a
  /// step is cut into tau slices of the same length, within one sample, and a micro-batch has its part of
  /// them. Fewer samples than tau take masks in turn, from step to step. Where hooks have made several copies
  /// of the samples, the batch is the first copy of all its samples, then the second.
  std::vector<RowSlice> slices(std::int64_t rows, std::size_t site, const DropoutCall& call) const {
    if (call.pass.sampling || rows == 0) return {{0, rows, 0}};
    const std::int64_t each = sites_[site].place.rows, samples = rows / each, tau = options_.tau;
    const StepPart part = part_of(samples, call.pass);
    const std::int64_t copies = samples / part.count, batch = copies * part.samples;
    std::vector<RowSlice> slices;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t place = sample / part.count * part.samples + part.first + sample % part.count;
      const std::int64_t mask = batch < tau ? (copies * part.before + place) % tau : place * tau / batch;
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
    double p = 0.0;           ///< probability that they are drawn with
    UnitMasks units;
    std::shared_ptr<const SiteMasks> masks;  ///< the same masks in blocks
  };

  /// Returns the place of a pass's samples in their step. Where hooks made no whole number of copies of them,
  /// or nobody set the place, they are a step by themselves.
  static StepPart part_of(std::int64_t samples, const ForwardContext& pass) {
    if (pass.part.count > 0 && samples % pass.part.count == 0) return pass.part;
    return {.count = samples, .samples = samples, .before = static_cast<std::int64_t>(pass.step) * samples};
  }

  std::vector<std::int64_t> permutation(const RandomStream& stream) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(options_.sigma));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
    return order;
  }

  /// Returns the number of the mask that is trained at a place: tau of them one after another at a time.
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
    if (first == site.first && count == site.units.count() && call.p == site.p) return site;
    site.first = first;
    site.p = call.p;
    draw(site, count);
    return site;
  }

  void draw(Site& site, std::int64_t count) const {
    const std::int64_t width = site.place.width, blocks = (width + block_ - 1) / block_;
    const std::int64_t size = (width + 7) / 8;  // bytes of a mask
    const at::Tensor bits = at::zeros({count, size}, at::kByte);
    auto* bytes = bits.mutable_data_ptr<std::uint8_t>();
    SiteMasks masks{.scale = static_cast<float>(1.0 / (1.0 - site.p))};
    std::vector<float> drawn(static_cast<std::size_t>(blocks));
    std::int64_t units = 0;
    for (std::int64_t slice = 0; slice < count; ++slice, bytes += size) {
      site.bank.fill_mask(drawn, 1.0 - site.p,
                          static_cast<std::uint64_t>(pick(site, site.first + slice)) *
                              static_cast<std::uint64_t>((blocks + 3) / 4));
      std::vector<std::int32_t> live;
      for (std::int32_t block = 0; block < blocks; ++block) {
        if (drawn[static_cast<std::size_t>(block)] == 0) continue;
        live.push_back(block);
        const std::int64_t end = std::min(width, (block + 1) * block_);
        for (std::int64_t unit = block * block_; unit < end; ++unit, ++units)
          bytes[unit % size] |= 1 << unit / size;
      }
      if (block_ > 1) masks.live.push_back(std::move(live));
    }
    if (options_.scale == "realised" && units > 0)
      masks.scale = static_cast<float>(static_cast<double>(count * width) / static_cast<double>(units));
    site.units = {.bits = bits, .width = width, .axis = site.place.axis, .scale = masks.scale};
    site.masks = std::make_shared<SiteMasks>(std::move(masks));
  }

  BankOptions options_;
  std::int64_t block_;
  std::vector<Site> sites_;
  std::vector<std::int64_t> order_;  ///< order of the masks where draw is "partition"
  std::int64_t start_ = 0, stretch_ = 1;
};

}  // namespace trainyard
