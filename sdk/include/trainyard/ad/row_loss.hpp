// The face of a loss of ad/loss.hpp towards the SDK's library, which puts it under autograd.
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("ad/row_loss.hpp");

namespace trainyard::ad::detail {

/// A loss of a row, whatever its function. One thread at a time.
class AnyRowLoss {
 public:
  virtual ~AnyRowLoss() = default;
  virtual double value(std::span<const double> x, std::span<const double> target) const = 0;
  /// Returns the loss, and its derivatives by x in `slopes`.
  virtual double gradient(std::span<const double> x, std::span<const double> target,
                          std::span<double> slopes) = 0;
  /// Gives the product of the second derivatives with the vector `along`.
  virtual void curvature(std::span<const double> x, std::span<const double> target,
                         std::span<const double> along, std::span<double> result) const = 0;
};

/// Returns the mean over rows; mean_loss() of ad/loss.hpp says more.
at::Tensor mean_of_rows(std::shared_ptr<AnyRowLoss> loss, const at::Tensor& output, const at::Tensor& target);

}  // namespace trainyard::ad::detail
