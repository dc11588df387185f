#include <trainyard/transform.hpp>

#include "thrower.hpp"

class TransformThrower final : public trainyard::Transform {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {"apply"}, {}); }
  explicit TransformThrower(const Options& options) : options_(options) {}
  std::unique_ptr<trainyard::Network> apply(std::unique_ptr<trainyard::Network> network,
                                            const trainyard::ModelContext&) const override {
    options_.at("apply");
    return network;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(TransformThrower)
