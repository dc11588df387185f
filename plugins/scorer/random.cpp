// Draws scores: what any other scorer must be better than.
#include <ATen/ops/empty.h>

#include <trainyard/scorer.hpp>

enum class RandomScoresOf : std::uint8_t { weights, filters };
template <>
struct trainyard::Words<RandomScoresOf> {
  static constexpr std::string_view words[] = {"weights", "filters"};
};

namespace {

using namespace trainyard;

class Random final : public Scorer {
 public:
  struct Options {
    RandomScoresOf of = RandomScoresOf::weights;
  };
  static void describe(Manifest<Options>& m) {
    m.name("random").version("1.0.0").summary("Scores weights or filters by chance.");
    m.option("of", &Options::of, "what is drawn for");
  }
  explicit Random(const Options& options) : options_(options) {}

  Of of() const override { return options_.of == RandomScoresOf::weights ? Of::weights : Of::filters; }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor&, const RandomStream& random) const override {
    const bool weights = options_.of == RandomScoresOf::weights;
    at::Tensor drawn =
        at::empty(weights ? layer.weight.sizes() : layer.weight.sizes().slice(0, 1), at::kDouble);
    fill_uniform(drawn, random, 0.0, 1.0);
    return drawn;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Random)
