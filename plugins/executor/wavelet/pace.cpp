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
  if (options_.budget > 0) {
    own.base = own.level = Meter::bytes(wave);
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
  if (profile_.empty()) {  // of the first pass nothing is known but where it turns
    if (ahead.phase == Phase::backward) return true;
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

/// What the bytes of the wave rose to since the point before.
void Pace::measure(int wave) {
  if (options_.budget <= 0) return;
  Progress& own = of(wave);
  const std::size_t before = own.points.size() - 2;
  if (rises_.size() <= before) rises_.resize(before + 1, 0);
  const std::int64_t high = Meter::take_high(wave);
  rises_[before] = std::max(rises_[before], high - own.level);
  peak_ = std::max(peak_, high - own.base);
  own.level = Meter::bytes(wave);
}

void Pace::hold(int wave, std::unique_lock<std::mutex>& lock) {
  if (options_.budget <= 0 || fits(wave)) return;
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
  held_.over += fits(wave) ? 0 : 1;
}

bool Pace::fits(int wave) const {
  const Progress& own = of(wave);
  const Progress& beside = of(other(wave));
  const std::size_t point = own.points.empty() ? 0 : own.points.size() - 1;
  std::int64_t need = point < rises_.size() ? rises_[point] : 0;
  if (beside.phase == Phase::forward && beside.pass < own.pass)
    need += std::max<std::int64_t>(0, peak_ - (Meter::bytes(other(wave)) - beside.base));
  return Meter::bytes() + need <= options_.budget;
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
