// Norms of filters (Li et al., "Pruning filters for efficient ConvNets", ICLR 2017: l1; He et al., "Soft filter pruning
// for accelerating deep convolutional neural networks", IJCAI 2018: l2).
#include <ATen/ops/norm.h>

#include <trainyard/scorer.hpp>

enum class FilterNormOrder : std::uint8_t { l1, l2 };
template <>
struct trainyard::Words<FilterNormOrder> {
  static constexpr std::string_view words[] = {"l1", "l2"};
};

namespace {

using namespace trainyard;

class FilterNorm final : public Scorer {
 public:
  struct Options {
    FilterNormOrder norm = FilterNormOrder::l1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("filter_norm").version("1.0.0").summary("Scores filters by the norm of their weights.");
    m.option("norm", &Options::norm, "l1: the sum of magnitudes; l2: the root of the sum of squares");
  }
  explicit FilterNorm(const Options& options) : options_(options) {}

  Of of() const override { return Of::filters; }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor&, const RandomStream&) const override {
    return layer.weight.flatten(1).norm(options_.norm == FilterNormOrder::l1 ? 1 : 2, 1);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(FilterNorm)
