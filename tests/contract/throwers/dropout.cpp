#include <trainyard/dropout.hpp>

#include "thrower.hpp"

class Thrower final : public trainyard::Dropout {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open"}, {"apply"}); }
  explicit Thrower(const Options& options) : options_(options) {}
  void open(std::span<const trainyard::DropoutSite>) override { options_.at("open"); }
  at::Tensor apply(const at::Tensor& x, std::size_t, const trainyard::RandomStream&) override {
    options_.at("apply");
    return x;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Thrower)
