#include "core/engine/distributed/under_way.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <thread>
#include <utility>

namespace trainyard::distributed {
namespace {

constexpr int eager_looks = 10'000;  ///< looks before it sleeps: a few ms, in which most exchanges end

void wait(c10d::Work& work, Lookout& others) {
  for (int looks = 0; !work.isCompleted(); ++looks) {
    others.check_others();
    if (looks < eager_looks)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
}

}  // namespace

UnderWay::UnderWay() = default;
UnderWay::~UnderWay() = default;

void UnderWay::add(Work work) {
  works_.push_back(std::move(work));
}

void UnderWay::settle(Lookout& others) {
  try {
    for (const Work& work : works_) wait(*work, others);
    works_.clear();
  } catch (const Error&) {
    abort();
    throw;
  } catch (const std::exception& error) {
    abort();
    throw others.explain(error.what());
  }
}

void UnderWay::abort() noexcept {
  for (const Work& work : std::exchange(works_, {})) try {
      work->abort();
    } catch (const std::exception&) {
      // It ends with its group.
    }
}

}  // namespace trainyard::distributed
