// Gradients summed in bfloat16: half the bytes, 8 bits of each, with the range of float. What was rounded off is
// not kept.
#include "narrow.hpp"

namespace {

using namespace compressors;

class Bf16 final : public NarrowCompressor {
 public:
  using Options = BucketOptions;
  static void describe(Manifest<Options>& m) {
    m.name("bf16").version("1.0.0").summary("Sums gradients in bfloat16.");
    BucketOptions::describe(m);
  }
  explicit Bf16(const Options& options) : NarrowCompressor(options, at::kBFloat16) {}
};

}  // namespace

TRAINYARD_PLUGIN(Bf16)
