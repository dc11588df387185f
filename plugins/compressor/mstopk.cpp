// MSTopK (Shi et al., MLSys 2021, section 3.1): the largest elements by counting how many reach a threshold,
// with error feedback; and exact ways to find them.
#include "sparse.hpp"

namespace {

using namespace compressors;

class MsTopK final : public SparseCompressor {
 public:
  using Options = SelectionOptions;
  static void describe(Manifest<Options>& m) {
    m.name("mstopk").version("1.0.0").summary(
        "Sends about the largest elements of gradients, found by counting.");
    SelectionOptions::describe(m);
    m.hook<&MsTopK::stepped>(Event::after_step);
    m.hook<&MsTopK::saving>(Event::before_checkpoint).sink();
    m.hook<&MsTopK::ended>(Event::fit_end).sink();
  }
  explicit MsTopK(const Options& options) : SparseCompressor(options, options.selection()) {}

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }
};

}  // namespace

TRAINYARD_PLUGIN(MsTopK)
