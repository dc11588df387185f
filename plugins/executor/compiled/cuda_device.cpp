// Recordings as CUDA graphs. LibTorch's own class for them lies in libtorch_cuda.so, which only a run on a GPU loads: this
// has what is needed of CUDA's runtime, and of LibTorch's allocator by its interface.
#include "device.hpp"

#if defined(TRAINYARD_CUDA) && __has_include(<c10/cuda/CUDACachingAllocator.h>)
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>

#include "nvrtc.hpp"

namespace compiled {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is said here, and not once more of what comes next
  throw trainyard::PluginError(std::string("CUDA gives not ") + what + ": " + cudaGetErrorString(error));
}

cudaStream_t native(const c10::Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

const c10::impl::VirtualGuardImpl& streams() {
  static const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return guard;
}

/// No cast that asks: its type's name would be ours, not that of libc10_cuda.so.
c10::cuda::CUDACachingAllocator::CUDAAllocator& allocator() {
  return *static_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(
      at::detail::getCUDAHooks().getCUDADeviceAllocator());
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(c10::Device device, const std::vector<char>& binary) : device_(device) {
    check(cudaLibraryLoadData(&library_, binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "the kernels of chains");
  }
  ~CudaKernels() override { cudaLibraryUnload(library_); }

  void launch(const std::string& name, std::int64_t count, std::span<void* const> pointers) const override {
    if (count == 0) return;
    cudaKernel_t kernel = nullptr;
    check(cudaLibraryGetKernel(&kernel, library_, name.c_str()), name.c_str());
    long long elements = count;
    std::vector<void*> places(pointers.begin(), pointers.end());
    std::vector<void*> arguments = {&elements};
    for (void*& place : places) arguments.push_back(&place);
    constexpr std::int64_t threads = 256, most_blocks = 4096;
    const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
    check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                           arguments.data(), 0, native(streams().getStream(device_))),
          name.c_str());
  }

 private:
  c10::Device device_;
  cudaLibrary_t library_ = nullptr;
};

class CudaRecording final : public Recording {
 public:
  CudaRecording(const c10::Stream& stream, c10::MempoolId_t pool, const std::function<void()>& work)
      : device_(stream.device()), pool_(pool) {
    const c10::StreamGuard guard(stream);
    allocator().beginAllocateToPool(device_.index(), pool_,
                                    [this](cudaStream_t each) { return is_recorded(each); });
    cudaGraph_t graph = nullptr;
    try {
      // Other threads go on meanwhile: those of the loader, and of NCCL.
      check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal), "a recording");
      cudaStreamCaptureStatus status{};
      unsigned long long capture = 0;
      check(cudaStreamGetCaptureInfo(native(stream), &status, &capture), "a recording");
      capture_ = capture;
      work();
    } catch (...) {
      cudaStreamEndCapture(native(stream), &graph);
      finish(graph);
      release();
      throw;
    }
    cudaError_t error = cudaStreamEndCapture(native(stream), &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable_, graph, 0);
    finish(graph);
    if (error != cudaSuccess) release();
    check(error, "a recording");
  }
  ~CudaRecording() override {
    const c10::DeviceGuard guard(device_);
    cudaDeviceSynchronize();
    cudaGraphExecDestroy(executable_);
    release();
  }
  void replay() override {
    check(cudaGraphLaunch(executable_, native(streams().getStream(device_))), "a recorded pass");
  }
  c10::MempoolId_t pool() const { return pool_; }

 private:
  bool is_recorded(cudaStream_t stream) const {
    cudaStreamCaptureStatus status{};
    unsigned long long capture = 0;
    return cudaStreamGetCaptureInfo(stream, &status, &capture) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive && capture == capture_;
  }
  void finish(cudaGraph_t graph) {
    allocator().endAllocateToPool(device_.index(), pool_);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void release() { allocator().releasePool(device_.index(), pool_); }

  c10::Device device_;
  c10::MempoolId_t pool_;
  std::atomic<unsigned long long> capture_ = 0;  ///< the allocator asks on the threads of autograd, too
  cudaGraphExec_t executable_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(c10::Device device)
      : device_(device), side_(streams().getStreamFromGlobalPool(device)) {}

  std::shared_ptr<const Kernels> kernels(const std::string& text) override {
    std::weak_ptr<const Kernels>& known = known_[text];
    std::shared_ptr<const Kernels> found = known.lock();
    if (found) return found;
    const c10::DeviceGuard guard(device_);
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_.index()), "its version");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_.index()), "its version");
    found = std::make_shared<CudaKernels>(device_, compile_for(10 * major + minor, text));
    known = found;
    return found;
  }

  void aside(const std::function<void()>& work) override {
    const c10::Stream current = streams().getStream(device_);
    order(current, side_);
    {
      const c10::StreamGuard guard(side_);
      work();
    }
    order(side_, current);
    // Memory that was made ready for one stream does not serve another.
    streams().synchronizeDevice(device_.index());
    allocator().emptyCache();
  }

  std::unique_ptr<Recording> record(const std::function<void()>& work, const Recording* ahead) override {
    // Numbers of pools: LibTorch counts its own from 1 on.
    static std::atomic<std::uint64_t> next = std::uint64_t{1} << 40;
    const c10::MempoolId_t pool =
        ahead != nullptr ? static_cast<const CudaRecording*>(ahead)->pool() : c10::MempoolId_t{0, next++};
    streams().synchronizeDevice(device_.index());
    return std::make_unique<CudaRecording>(side_, pool, work);
  }

 private:
  static void order(const c10::Stream& first, const c10::Stream& then) {
    c10::Event event(c10::kCUDA);
    event.record(first);
    event.block(then);
  }

  c10::Device device_;
  c10::Stream side_;
  std::map<std::string, std::weak_ptr<const Kernels>> known_;
};

}  // namespace

std::unique_ptr<Device> cuda_device(c10::Device device) {
  return std::make_unique<CudaDevice>(device);
}

}  // namespace compiled
#else
namespace compiled {

std::unique_ptr<Device> cuda_device(c10::Device) {
  return nullptr;
}

}  // namespace compiled
#endif
