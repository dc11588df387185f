// The k largest elements of each bucket, exactly, with error feedback (Aji and Heafield, EMNLP 2017; Stich et
// al., NeurIPS 2018).
#include "sparse.hpp"

namespace {

using namespace compressors;

class TopK final : public SparseCompressor {
 public:
  using Options = FeedbackOptions;
  static void describe(Manifest<Options>& m) {
    m.name("topk").version("1.0.0").summary("Sends the largest elements of gradients, exactly.");
    FeedbackOptions::describe(m);
    m.hook<&TopK::stepped>(Event::after_step);
    m.hook<&TopK::saving>(Event::before_checkpoint).sink();
    m.hook<&TopK::ended>(Event::fit_end).sink();
  }
  /// All exact methods select the same; this is the fastest of them.
  explicit TopK(const Options& options) : SparseCompressor(options, {.method = kernels::Method::radix}) {}

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }
};

}  // namespace

TRAINYARD_PLUGIN(TopK)
