// What the NVIDIA GPUs of the machine do, from NVIDIA's management library, if it is there.
#pragma once

#include <string>
#include <vector>

#include <boost/dll/shared_library.hpp>

#include <trainyard/trial.hpp>

namespace trial {

using namespace trainyard;

class Gpus {
 public:
  /// Opens the library; where there is none, or no driver behind it, there are no GPUs.
  explicit Gpus(const std::string& library = "libnvidia-ml.so.1");
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  /// system/gpu and system/gpu_memory (recorder.hpp), each if every GPU tells it.
  std::vector<TensorRecord> sample() const;

 private:
  boost::dll::shared_library library_;
  std::vector<void*> devices_;
};

}  // namespace trial
