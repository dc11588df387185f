// Makes groups of all ranks when it is opened, and gives up on one rank ahead of one of them. Sums nothing.
#include <numeric>

#include <trainyard/compressor.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Quitting final : public Compressor {
 public:
  struct Options {
    std::int64_t groups = 2, at = 0, rank = -1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("quitting").version("1.0.0").summary("Makes groups, and gives up.");
    m.needs("distributed");
    m.option("groups", &Options::groups, "how many it makes");
    m.option("at", &Options::at, "ahead of which of them it gives up");
    m.option("rank", &Options::rank, "on which alone; -1: on none");
  }
  explicit Quitting(const Options& options) : options_(options) {}

  bool takes(const NamedTensor&) const override { return false; }
  void open(Ranks& ranks, std::span<const BucketPlan>, const RunScale&) override {
    std::vector<int> all(static_cast<std::size_t>(ranks.size()));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t i = 0; i < options_.groups; ++i) {
      if (i == options_.at && options_.rank == ranks.rank()) faulty::go_wrong("throw");
      groups_.push_back(ranks.group(all));
    }
  }
  std::unique_ptr<Exchange> reduce(std::size_t, const at::Tensor&, std::int64_t) override { return {}; }
  void load_all(std::span<const State>) override {}

 private:
  Options options_;
  std::vector<std::unique_ptr<RankGroup>> groups_;
};

}  // namespace

TRAINYARD_PLUGIN(Quitting)
