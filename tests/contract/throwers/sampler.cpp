#include <numeric>

#include <trainyard/sampler.hpp>

#include "thrower.hpp"

class SamplerThrower final : public trainyard::Sampler {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open", "size"}, {"order"}); }
  explicit SamplerThrower(const Options& options) : options_(options) {}
  void open(const Source& source) override {
    options_.at("open");
    size_ = source.size;
  }
  std::int64_t size() const override {
    options_.at("size");
    return size_;
  }
  void order(std::int64_t, std::int64_t first, std::span<std::int64_t> out) const override {
    options_.at("order");
    std::iota(out.begin(), out.end(), first);
  }

 private:
  Options options_;
  std::int64_t size_ = 0;
};
TRAINYARD_PLUGIN(SamplerThrower)
