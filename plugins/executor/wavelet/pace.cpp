#include "pace.hpp"

#include <algorithm>
#include <utility>

namespace wavelet {
namespace {

/// How often a wave that is held looks again: memory is let go between points, too.
constexpr std::chrono::microseconds look{200};

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void Pace::announce(int wave, std::int64_t last) {
  const std::lock_guard lock(mutex_);
  of(wave).last = last;
}

void Pace::begin(int wave, std::int64_t pass) {
  std::unique_lock lock(mutex_);
  Progress& own = of(wave);
  own.phase = Phase::waiting;
  own.pass = pass;
  changed_.notify_all();  // one who waits for a pass ahead of it, which there may not be, goes on
  while (!offset_reached(of(other(wave)), pass - 1, lock)) {}
  own.points.clear();
  own.elapsed.clear();
  own.held = 0.0;
  own.turn = 0;
  if (looks_at_memory()) {
    own.base = Meter::bytes(wave);
    Meter::take_high(wave);
  }
  hold(wave, lock);
  own.held = 0.0;  // ahead of the start
  own.phase = Phase::forward;
  mark(wave, What::start);
}

/// Whether pass number `pass` is as far as the next may begin; else waits for a change, or for that moment.
bool Pace::offset_reached(const Progress& ahead, std::int64_t pass, std::unique_lock<std::mutex>& lock) {
  if (ahead.last < pass || ahead.pass > pass || (ahead.pass == pass && ahead.phase == Phase::done))
    return true;
  if (ahead.pass < pass || ahead.phase == Phase::waiting) {
    changed_.wait(lock);
    return false;
  }
  if (options_.offset == 0.0) return true;
  if (profile_.empty()) {  // until the first pass is done
    changed_.wait(lock);
    return false;
  }
  const auto [point, after] = profile_.place(options_.offset * profile_.cycle());
  if (ahead.points.size() <= point) {
    changed_.wait(lock);
    return false;
  }
  const auto due =
      ahead.points[point] + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(after));
  return changed_.wait_until(lock, due) == std::cv_status::timeout || Clock::now() >= due;
}

void Pace::node(int wave) {
  std::unique_lock lock(mutex_);
  mark(wave, What::node);
  measure(wave);
  hold(wave, lock);
}

void Pace::turn(int wave) {
  std::unique_lock lock(mutex_);
  Progress& own = of(wave);
  own.turn = own.points.size();
  mark(wave, What::turn);
  measure(wave);
  hold(wave, lock);
  own.phase = Phase::backward;
  changed_.notify_all();
}

void Pace::back(int wave) {
  const std::lock_guard lock(mutex_);
  mark(wave, What::back);
  measure(wave);
}

void Pace::end(int wave) {
  const std::lock_guard lock(mutex_);
  Progress& own = of(wave);
  mark(wave, What::end);
  measure(wave);
  profile_.add(own.elapsed, own.turn);
  own.phase = Phase::done;
  changed_.notify_all();
}

void Pace::done(int wave) {
  const std::lock_guard lock(mutex_);
  Progress& own = of(wave);
  own.pass = own.last;
  own.phase = Phase::done;
  changed_.notify_all();
}

void Pace::mark(int wave, What what) {
  Progress& own = of(wave);
  const Clock::time_point now = Clock::now();
  own.points.push_back(now);
  own.elapsed.push_back(seconds(now - own.points.front()) - own.held);
  if (recording_) marks_.push_back({now.time_since_epoch().count(), wave, own.pass, what});
  changed_.notify_all();
}

/// The most bytes that the wave had since the point before.
void Pace::measure(int wave) {
  if (!looks_at_memory()) return;
  const Progress& own = of(wave);
  curve_.add(own.points.size() - 2, Meter::take_high(wave) - own.base);
}

void Pace::hold(int wave, std::unique_lock<std::mutex>& lock) {
  if (!looks_at_memory() || fits(wave)) return;
  const Progress& beside = of(other(wave));
  Progress& own = of(wave);
  const Clock::time_point began = Clock::now();
  bool waited = false;
  while (!fits(wave) && may_release(own, beside)) {
    waited = true;
    changed_.wait_for(lock, look);
  }
  const double waiting = seconds(Clock::now() - began);
  own.held += waiting;
  held_.seconds += waiting;
  held_.times += waited ? 1 : 0;
  held_.over += options_.budget > 0 && Meter::bytes() + need(wave, false) > options_.budget ? 1 : 0;
}

bool Pace::fits(int wave) const {
  const Progress &own = of(wave), &beside = of(other(wave));
  std::int64_t rise = need(wave, own.turn > 0);
  const bool in_pass = beside.phase == Phase::forward || beside.phase == Phase::backward;
  if (in_pass && (beside.pass < own.pass || beside.phase == Phase::backward)) rise += need(other(wave), true);
  if (options_.budget > 0 && Meter::bytes() + rise > options_.budget) return false;
  const double bound = options_.peaks * static_cast<double>(curve_.peak());
  return bound == 0.0 || static_cast<double>(above(wave) + above(other(wave)) + rise) <= bound;
}

/// What a pass takes beyond what it has, up to its next point or to its end.
std::int64_t Pace::need(int wave, bool to_the_end) const {
  const Progress& pass = of(wave);
  const std::size_t point = pass.points.empty() ? 0 : pass.points.size() - 1;
  return std::max<std::int64_t>(0, (to_the_end ? curve_.ahead(point) : curve_.next(point)) - above(wave));
}

/// The bytes of a pass, without those that the wave began it with.
std::int64_t Pace::above(int wave) const {
  const Progress& pass = of(wave);
  const bool in_pass = pass.phase == Phase::forward || pass.phase == Phase::backward;
  return in_pass ? Meter::bytes(wave) - pass.base : 0;
}

/// Whether waiting for the other wave is worth it.
bool Pace::may_release(const Progress& own, const Progress& other) const {
  return other.phase == Phase::backward || (other.phase == Phase::forward && other.pass < own.pass);
}

Profile Pace::profile() const {
  const std::lock_guard lock(mutex_);
  return profile_;
}

Pace::Held Pace::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::vector<Pace::Mark> Pace::take_marks() {
  const std::lock_guard lock(mutex_);
  return std::exchange(marks_, {});
}

}  // namespace wavelet
