// Norms of gradients, weights and updates by layer, cheaply: of large parameters a sample is enough.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/named_tensor.hpp>

namespace step_screen {

/// A norm for each layer: parameters that share all of their names but the last part. Loop thread.
class Norms {
 public:
  Norms() = default;
  /// `sample`: elements of a parameter that are looked at, in runs that are spread over it; 0: all.
  Norms(const std::vector<trainyard::NamedTensor>& parameters, std::int64_t sample);

  const std::vector<std::string>& layers() const { return layers_; }

  std::vector<double> of_gradients() const;
  /// Also keeps the weights, for of_updates().
  std::vector<double> of_weights();
  /// Returns the norms of the weights' changes since of_weights().
  std::vector<double> of_updates() const;

 private:
  std::vector<at::Tensor> gradients() const;
  std::vector<double> by_layer(const std::vector<double>& squares) const;

  std::int64_t sample_ = 0;
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> layer_of_;  ///< of each parameter
  std::vector<std::string> layers_;
  std::vector<std::vector<double>> kept_;  ///< elements that are looked at
  std::vector<at::Tensor> kept_whole_;     ///< on other devices
};

}  // namespace step_screen
