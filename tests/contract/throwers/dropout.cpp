#include <trainyard/dropout.hpp>

#include "thrower.hpp"

class DropoutThrower final : public trainyard::Dropout {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"open"}, {"apply"}); }
  explicit DropoutThrower(const Options& options) : options_(options) {}
  void open(const trainyard::DropoutPlaces&) override { options_.at("open"); }
  at::Tensor apply(const at::Tensor& x, std::size_t, const trainyard::DropoutCall&) override {
    options_.at("apply");
    return x;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(DropoutThrower)
