// When a pass may begin, and when it may go on: passes are numbered in the order in which they begin, each of the
// other wave than the one before.
//
// A pass begins when the one before it is a part of a cycle ahead - half a cycle by default, which is best (card of
// Wavelet: peak = A (1 + |b - f| / (2 max(f, b))) for forward f and backward b, 2 A in phase). The moment is told by
// the points of that pass: it is the last point ahead of the offset, by the profile, and what then is left of it.
//
// Memory: behind each node forward a wave goes on if the bytes in use and what they rise to up to the next node are
// within the bounds, and if what the other still needs is left for it; at the turn, if all of its backward is, which
// nothing holds up from then on. Else it waits. The older of two passes leaves nothing to a younger that is forward,
// and waits only while the younger runs backward: nobody waits for ever, and what does not fit by itself goes on
// above the budget, and is counted. The first pass of all is made alone, so that its memory and its time are known
// to the second.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "curve.hpp"
#include "meter.hpp"
#include "profile.hpp"

namespace wavelet {

class Pace {
 public:
  struct Options {
    double offset = 0.5;        ///< of a cycle
    std::int64_t warm_up = 10;  ///< passes
    std::int64_t budget = 0;    ///< bytes that both may have; 0: any
    double peaks = 0.0;         ///< of one pass, that both may have above what they begin with; 0: any
  };
  enum class What : std::uint8_t { start, node, turn, back, end };
  struct Mark {
    std::int64_t nanoseconds;  ///< of the steady clock
    int wave;
    std::int64_t pass;
    What what;
  };
  /// What the governor did.
  struct Held {
    std::int64_t times = 0, over = 0;  ///< waits; nodes that went on above the budget
    double seconds = 0.0;              ///< of waiting
  };

  explicit Pace(const Options& options) : options_(options), profile_(options.warm_up) {}

  /// The wave will make passes up to that number. Loop thread.
  void announce(int wave, std::int64_t last);

  // Of a wave's pass, on its thread, in this order.

  /// Waits until pass number `pass` - 1 is far enough, if it is announced for the other wave.
  void begin(int wave, std::int64_t pass);
  void node(int wave);  ///< behind a node forward; waits for memory
  void turn(int wave);  ///< forward is done
  void back(int wave);  ///< behind a node backward
  void end(int wave);
  /// The wave makes none of its passes up to now any more, whatever became of them: nobody waits for it.
  void done(int wave);

  Profile profile() const;
  Held held() const;
  /// Keeps a mark of every point, from now on.
  void record() { recording_ = true; }
  std::vector<Mark> take_marks();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { done, waiting, forward, backward };
  struct Progress {
    std::int64_t pass = -1, last = -1;  ///< the newest, and the last announced
    Phase phase = Phase::done;
    std::vector<Clock::time_point> points;
    std::vector<double> elapsed;  ///< without what it was held
    double held = 0.0;
    std::size_t turn = 0;
    std::int64_t base = 0;  ///< bytes at the start
  };

  bool offset_reached(const Progress& ahead, std::int64_t pass, std::unique_lock<std::mutex>& lock);
  void mark(int wave, What what);
  void measure(int wave);
  void hold(int wave, std::unique_lock<std::mutex>& lock);
  bool looks_at_memory() const { return options_.budget > 0 || options_.peaks > 0.0; }
  bool fits(int wave) const;
  std::int64_t need(int wave, bool to_the_end) const;
  std::int64_t above(int wave) const;
  bool may_release(const Progress& own, const Progress& other) const;
  Progress& of(int wave) { return waves_[static_cast<std::size_t>(wave)]; }
  const Progress& of(int wave) const { return waves_[static_cast<std::size_t>(wave)]; }
  static int other(int wave) { return 1 - wave; }

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Progress, most_waves> waves_;
  Profile profile_;
  Curve curve_;
  Held held_;
  bool recording_ = false;
  std::vector<Mark> marks_;
};

}  // namespace wavelet
