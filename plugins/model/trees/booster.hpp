// What the model takes of XGBoost: its C interface (1.7), with errors as exceptions and handles that free themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trees {

/// Rows of features as XGBoost has them: bins are made at the first round, once.
class Matrix {
 public:
  /// `rows` are floats [size, features] without gaps; NaN is a missing value.
  Matrix(const at::Tensor& rows, int threads);
  /// Says which features the next trees see, where colsample_bytree leaves as many.
  void see(const std::vector<std::uint8_t>& features);
  void* handle() const { return handle_.get(); }
  std::int64_t size() const { return size_; }

 private:
  std::shared_ptr<void> handle_;
  std::int64_t size_;
};

/// An ensemble of trees, of which each round adds one an output.
class Booster {
 public:
  /// One without trees.
  explicit Booster(std::int64_t outputs);
  /// One that was saved. Throws DataError where it is none.
  Booster(const at::Tensor& bytes, std::int64_t outputs);

  /// Sets a parameter of XGBoost, which stays set.
  void set(const std::string& name, const std::string& value);

  /// Adds a tree for each output, by derivatives [size, outputs].
  void grow(const Matrix& matrix, const at::Tensor& gradient, const at::Tensor& hessian);

  /// Return [size, outputs]. Those of a matrix that it grew on are kept, and a new tree's are added to them.
  at::Tensor margins(const Matrix& matrix) const;
  at::Tensor predict(const at::Tensor& rows) const;

  /// Writes XGBoost's own format, UBJSON, into a tensor of bytes, which it resizes.
  void save(at::Tensor& bytes) const;

  std::int64_t rounds() const;
  std::int64_t features() const;  ///< 0 without a tree

 private:
  std::shared_ptr<void> handle_;
  std::int64_t outputs_;
};

}  // namespace trees
