// What a plan needs of a device that is no CPU: kernels of a text, and recordings of work, which are played again for
// less than the work takes to put on its stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <c10/core/Device.h>

namespace compiled {

/// Compiled, and on the device.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// Puts one on the current stream: (count, pointers...).
  virtual void launch(const std::string& name, std::int64_t count, std::span<void* const> pointers) const = 0;
};

/// Its memory is given back when it goes, once the device is done with it.
class Recording {
 public:
  virtual ~Recording() = default;
  /// On the current stream: the same kernels on the same memory.
  virtual void replay() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// Of a text in CUDA C++. One text is compiled once, as long as somebody has its kernels. Throws ConfigError where
  /// the compiler is missing, PluginError with what it says where it refuses the text.
  virtual std::shared_ptr<const Kernels> kernels(const std::string& text) = 0;
  /// Does work on the stream of recordings, behind what the current stream has and ahead of what it gets.
  virtual void aside(const std::function<void()>& work) = 0;
  /// Records what `work` puts on its stream; nothing of it is computed. Tensors that it makes have memory of the
  /// recording's own, or share that of a recording which is always played ahead of this one. Throws what `work`
  /// throws, and PluginError where it cannot be recorded: it waits for the device.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work, const Recording* ahead) = 0;
};

/// One that CUDA knows. Null where this was built without CUDA.
std::unique_ptr<Device> cuda_device(c10::Device device);

}  // namespace compiled
