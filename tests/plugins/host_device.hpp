// A device that is this processor: kernels by the compiler of the build, and recordings that do their work again, on the
// memory that they had as they were recorded. What a real one leaves out is left out here, too: as it records, nothing is
// computed.
#pragma once

#include <catch2/catch.hpp>

#include <c10/core/Allocator.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <trainyard/graph/network.hpp>

#include "plugins/executor/compiled/device.hpp"
#include "tests/support/command.hpp"
#include "tests/support/folder.hpp"

namespace trainyard::test {

/// CUDA's words for one thread after another, and its functions without a header, which takes three times as long.
inline constexpr const char* host_words = R"(#define expf __builtin_expf
#define expm1f __builtin_expm1f
#define fabsf __builtin_fabsf
#define log1pf __builtin_log1pf
#define logf __builtin_logf
#define sqrtf __builtin_sqrtf
#define tanhf __builtin_tanhf
#define __device__
#define __global__
#define __int_as_float(bits) __builtin_bit_cast(float, bits)
static struct Place { unsigned x; } blockIdx, threadIdx, blockDim = {4}, gridDim = {3};
)";

/// The kernels of a text, each called for 3 blocks of 4 threads.
class HostKernels final : public compiled::Kernels {
 public:
  explicit HostKernels(const std::string& text) {
    const Folder folder;
    write_file(folder / "kernels.cpp", host_words + text + calls(text));
    const Output made = run(TRAINYARD_CXX " -std=c++17 -O0 -fPIC -shared -o " + folder / "kernels.so" + " " +
                            folder / "kernels.cpp");
    INFO(made.text);
    REQUIRE(made.status == 0);
    library_.reset(dlopen((folder / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL));
    REQUIRE(library_);
  }
  void launch(const std::string& name, std::int64_t count, std::span<void* const> pointers) const override {
    const auto call =
        reinterpret_cast<void (*)(long long, void* const*)>(dlsym(library_.get(), ("call_" + name).c_str()));
    REQUIRE(call != nullptr);
    call(count, pointers.data());
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  static std::string calls(const std::string& text) {
    std::string found;
    const std::regex head("__global__ void (\\w+)\\(([^)]*)\\)");
    for (std::sregex_iterator each(text.begin(), text.end(), head), end; each != end; ++each) {
      const std::string parameters = (*each)[2];
      found += "extern \"C\" void call_" + each->str(1) +
               "(long long count, void* const* p) {\n"
               "  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)\n"
               "    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) " +
               each->str(1) + "(count";
      for (long i = 0; i < std::count(parameters.begin(), parameters.end(), ','); ++i)
        found += ", (float*)p[" + std::to_string(i) + "]";
      found += ");\n}\n";
    }
    return found;
  }
  std::unique_ptr<void, Close> library_;
};

/// While it records, memory that the thread asks for is kept; later it is given again, in the same order.
class FixedMemory final : public c10::Allocator {
 public:
  void during(const std::function<void()>& work) {
    next_ = 0;
    thread_ = std::this_thread::get_id();
    before_ = c10::GetAllocator(c10::kCPU);
    c10::SetAllocator(c10::kCPU, this);
    try {
      work();
    } catch (...) {
      c10::SetAllocator(c10::kCPU, before_);
      throw;
    }
    c10::SetAllocator(c10::kCPU, before_);
    is_recorded_ = true;
  }
  /// As memory that nothing was computed to.
  void spoil() {
    for (auto& [data, bytes] : blocks_) std::memset(data.get(), 0xFF, bytes);
  }
  at::DataPtr allocate(std::size_t bytes) override {
    if (std::this_thread::get_id() != thread_) return before_->allocate(bytes);
    if (!is_recorded_) blocks_.emplace_back(before_->allocate(bytes), bytes);
    if (next_ >= blocks_.size() || blocks_[next_].second != bytes)
      throw std::logic_error("a recording asks for other memory than it did at first");
    void* const place = blocks_[next_++].first.get();
    return {place, place, &keep, c10::Device(c10::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &keep; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void keep(void*) {}

  std::vector<std::pair<at::DataPtr, std::size_t>> blocks_;
  std::size_t next_ = 0;
  bool is_recorded_ = false;
  std::thread::id thread_;
  c10::Allocator* before_ = nullptr;
};

class HostRecording final : public compiled::Recording {
 public:
  HostRecording(const GraphNetwork& network, std::function<void()> work) : work_(std::move(work)) {
    std::vector<std::pair<at::Tensor, at::Tensor>> statistics;
    for (const NamedTensor& each : network.buffers())
      statistics.emplace_back(each.tensor, each.tensor.clone());
    memory_.during(work_);
    memory_.spoil();
    for (const auto& [now, before] : statistics)  // autograd must not see it
      std::memcpy(now.mutable_data_ptr(), before.const_data_ptr(), now.nbytes());
  }
  void replay() override { memory_.during(work_); }

 private:
  FixedMemory memory_;
  std::function<void()> work_;
};

class HostDevice final : public compiled::Device {
 public:
  explicit HostDevice(const GraphNetwork& network) : network_(network) {}
  std::shared_ptr<const compiled::Kernels> kernels(const std::string& text) override {
    static std::map<std::string, std::shared_ptr<const compiled::Kernels>> known;
    std::shared_ptr<const compiled::Kernels>& found = known[text];
    if (!found) found = std::make_shared<HostKernels>(text);
    return found;
  }
  void aside(const std::function<void()>& work) override { work(); }
  std::unique_ptr<compiled::Recording> record(const std::function<void()>& work,
                                              const compiled::Recording*) override {
    return std::make_unique<HostRecording>(network_, work);
  }

 private:
  const GraphNetwork& network_;
};

}  // namespace trainyard::test
