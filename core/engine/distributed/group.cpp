#include "core/engine/distributed/group.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace trainyard::distributed {
namespace {

/// An exchange in CPU memory. It waits in pieces, so that a rank that only went silent is noticed, too.
class HostExchange final : public Exchange {
 public:
  HostExchange(UnderWay::Work work, Lookout& others) : work_(std::move(work)), others_(others) {}

  void wait() override {
    while (!wait_a_while()) others_.check_others();
  }

 private:
  /// Returns true if the exchange is complete. Throws if it failed.
  bool wait_a_while() {
    const bool ended = work_->isCompleted();  // asked first: it may end while the wait gives up
    try {
      return work_->wait(others_.pause());
    } catch (const std::exception& error) {
      if (ended) throw others_.explain(error.what());
      return false;
    }
  }

  const UnderWay::Work work_;
  Lookout& others_;
};

/// An exchange on a device. wait() makes the device's next work wait, not the host (UnderWay::settle).
class DeviceExchange final : public Exchange {
 public:
  DeviceExchange(UnderWay::Work work, Lookout& others) : work_(std::move(work)), others_(others) {}

  void wait() override {
    others_.explained([&] { work_->synchronize(); });
  }

 private:
  const UnderWay::Work work_;
  Lookout& others_;
};

}  // namespace

Group::Group(Backend host, std::function<Backend()> make_device, Lookout& others, UnderWay& under_way)
    : host_(std::move(host)), make_device_(std::move(make_device)), others_(others), under_way_(under_way) {}

Group::~Group() {
  try {
    if (device_) device_->abort();
    const auto is_done = [](const UnderWay::Work& work) { return work->isCompleted(); };
    if (!std::ranges::all_of(begun_, is_done))
      std::thread([host = std::move(host_)]() mutable { host.reset(); }).detach();
  } catch (const std::exception&) {
    // The device's memory is lost until the process ends, or no thread could start and this has waited.
  }
}

template <class Begin>
std::unique_ptr<Exchange> Group::begin(const at::Tensor& tensor, Begin&& begin) {
  return others_.explained([&]() -> std::unique_ptr<Exchange> {
    if (tensor.is_cpu()) {
      while (!begun_.empty() && begun_.front()->isCompleted()) begun_.pop_front();
      return std::make_unique<HostExchange>(begun_.emplace_back(begin(*host_)), others_);
    }
    if (!device_) device_ = make_device_();
    UnderWay::Work work = begin(*device_);
    under_way_.add(work);
    return std::make_unique<DeviceExchange>(std::move(work), others_);
  });
}

std::unique_ptr<Exchange> Group::all_reduce(const at::Tensor& tensor) {
  return begin(tensor, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{tensor};
    return backend.allreduce(tensors);
  });
}

std::unique_ptr<Exchange> Group::all_gather(const at::Tensor& all, const at::Tensor& own) {
  return begin(own, [&](c10d::Backend& backend) {
    at::Tensor output = all, input = own;
    return backend._allgather_base(output, input);
  });
}

std::unique_ptr<Exchange> Group::reduce_scatter(const at::Tensor& own, const at::Tensor& all) {
  return begin(own, [&](c10d::Backend& backend) {
    at::Tensor output = own, input = all;
    return backend._reduce_scatter_base(output, input);
  });
}

std::unique_ptr<Exchange> Group::broadcast(const at::Tensor& tensor, int root) {
  return begin(tensor, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  });
}

}  // namespace trainyard::distributed
