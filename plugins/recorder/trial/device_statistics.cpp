#include "device_statistics.hpp"

#ifdef TRAINYARD_CUDA
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/statistics.hpp"

namespace trial {
namespace {

namespace cuda = kernels::cuda;

std::optional<cuda::Dtype> dtype_of(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat: return cuda::Dtype::float32;
    case at::kDouble: return cuda::Dtype::float64;
    case at::kHalf: return cuda::Dtype::float16;
    case at::kBFloat16: return cuda::Dtype::bfloat16;
    default: return std::nullopt;
  }
}

Statistics statistics_of(const cuda::Numbers& n) {
  return {.count = n.count,
          .zeros = n.zeros,
          .nans = n.nans,
          .infinities = n.infinities,
          .minimum = n.minimum,
          .maximum = n.maximum,
          .abs_minimum = n.abs_minimum,
          .abs_maximum = n.abs_maximum,
          .sum = n.sum,
          .l1 = n.l1,
          .squares = n.squares,
          .product = n.product,
          .deviation = n.deviation,
          .abs_deviation = n.abs_deviation};
}

}  // namespace

struct DeviceStatistics::State {
  struct Launch {
    cuda::MultiStatistics statistics;
    std::vector<std::size_t> tensors;
  };
  std::deque<Launch> launches;  ///< the first `used` are under way; the others' memory is kept
  std::size_t used = 0;
  std::vector<cuda::View> views;
  std::vector<std::size_t> tensors;  ///< of views
  std::vector<at::Tensor> held;      ///< until they are launched: their memory would be given to others
  std::optional<at::Device> device;
};

DeviceStatistics::DeviceStatistics() = default;
DeviceStatistics::~DeviceStatistics() = default;

bool DeviceStatistics::add(std::size_t tensor, const at::Tensor& values) {
  if (!values.is_cuda() || !values.is_contiguous()) return false;
  const std::optional<cuda::Dtype> dtype = dtype_of(values);
  if (!dtype) return false;
  if (!state_) {
    if (!cuda::available()) return false;
    state_ = std::make_unique<State>();
  }
  if (state_->device.value_or(values.device()) != values.device()) return false;
  state_->device = values.device();
  state_->views.push_back({values.const_data_ptr(), values.numel(), *dtype});
  state_->tensors.push_back(tensor);
  state_->held.push_back(values);
  return true;
}

void DeviceStatistics::launch() {
  if (!state_ || state_->views.empty()) return;
  if (state_->used == state_->launches.size()) state_->launches.emplace_back();
  State::Launch& launch = state_->launches[state_->used];
  const c10::DeviceGuard guard(*state_->device);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(state_->device->type()).getStream(*state_->device);
  launch.statistics.launch(state_->views, stream.native_handle());
  launch.tensors = std::exchange(state_->tensors, {});
  state_->views.clear();
  state_->held.clear();
  ++state_->used;
}

bool DeviceStatistics::any() const {
  return state_ && state_->used > 0;
}

void DeviceStatistics::results(const std::function<void(std::size_t, const Statistics&)>& take) {
  if (!state_) return;
  const std::size_t used = std::exchange(state_->used, std::size_t{0});
  for (std::size_t i = 0; i < used; ++i) {
    const State::Launch& launch = state_->launches[i];
    const std::span<const cuda::Numbers> numbers = launch.statistics.results();
    for (std::size_t j = 0; j < numbers.size(); ++j) take(launch.tensors[j], statistics_of(numbers[j]));
  }
}

}  // namespace trial
#else
namespace trial {

struct DeviceStatistics::State {};

DeviceStatistics::DeviceStatistics() = default;
DeviceStatistics::~DeviceStatistics() = default;
bool DeviceStatistics::add(std::size_t, const at::Tensor&) {
  return false;
}
void DeviceStatistics::launch() {}
bool DeviceStatistics::any() const {
  return false;
}
void DeviceStatistics::results(const std::function<void(std::size_t, const Statistics&)>&) {}

}  // namespace trial
#endif
