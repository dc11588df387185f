// Which pass a stage makes next: forward while fewer than `depth` waves are between their forward and their backward here,
// else backward of the oldest. Both come to a stage in the order of the waves, so that nobody has to ask whose turn it
// is, and sums do not depend on time. The last stage, which turns around, has a depth of one, those ahead of the number of
// waves: a round takes as long as the list schedule of the card's section 2.3, and stages that are ahead of others stay so.
#pragma once

#include <cstdint>

namespace wavelet {

enum class Next : std::uint8_t { nothing, forward, backward };

class Order {
 public:
  Order(int stage, int stages, std::int64_t waves) : depth_(stage + 1 == stages ? 1 : waves) {}

  /// `launched`: waves that may go forward; `wanted`: those of them that somebody waits for.
  Next next(std::int64_t launched, std::int64_t wanted) const {
    const std::int64_t here = forwards_ - backwards_;
    if (here < depth_ && forwards_ < launched) return Next::forward;
    return here == depth_ || (here > 0 && backwards_ < wanted) ? Next::backward : Next::nothing;
  }
  void done(Next pass) { ++(pass == Next::forward ? forwards_ : backwards_); }

  std::int64_t forwards() const { return forwards_; }
  std::int64_t backwards() const { return backwards_; }

 private:
  std::int64_t depth_;
  std::int64_t forwards_ = 0, backwards_ = 0;
};

}  // namespace wavelet
