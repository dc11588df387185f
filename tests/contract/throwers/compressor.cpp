#include <trainyard/compressor.hpp>

#include "thrower.hpp"

class CompressorThrower final : public trainyard::Compressor {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"takes", "open"}, {"reduce"});
    m.needs("distributed");
  }
  explicit CompressorThrower(const Options& options) : options_(options) {}

  bool takes(const trainyard::NamedTensor&) const override {
    options_.at("takes");
    return true;
  }
  void open(trainyard::Ranks& ranks, std::span<const trainyard::BucketPlan>,
            const trainyard::RunScale&) override {
    options_.at("open");
    ranks_ = &ranks;
  }
  std::unique_ptr<trainyard::Exchange> reduce(std::size_t, const at::Tensor& gradients,
                                              std::int64_t) override {
    options_.at("reduce");
    return ranks_->all_reduce(gradients);
  }
  void load_all(std::span<const trainyard::State>) override {}

 private:
  Options options_;
  trainyard::Ranks* ranks_ = nullptr;
};
TRAINYARD_PLUGIN(CompressorThrower)
