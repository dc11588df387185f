// Gradients summed in half precision: half the bytes, 11 bits of each. A mean above 65504 becomes an infinity,
// which the host treats as any; below 6e-8 it becomes 0. What was rounded off is not kept.
#include "narrow.hpp"

namespace {

using namespace compressors;

class Fp16 final : public NarrowCompressor {
 public:
  using Options = BucketOptions;
  static void describe(Manifest<Options>& m) {
    m.name("fp16").version("1.0.0").summary("Sums gradients in half precision.");
    BucketOptions::describe(m);
  }
  explicit Fp16(const Options& options) : NarrowCompressor(options, at::kHalf) {}
};

}  // namespace

TRAINYARD_PLUGIN(Fp16)
