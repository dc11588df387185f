// Tensors as values: a copy shares the numbers until either side writes them (copy on write). So keeping the
// model as it is at a step costs a handle for each tensor, and a copy of only those that are then written.
//
// It is LibTorch's own copy on write of storages (c10/core/impl/COW.h): counts are atomic, views of a tensor share its
// storage and so count with it, operators in place, fused and for lists make a storage its own before they write, and the
// last that holds a buffer takes it without a copy. What it cannot see is a pointer:
//   - who keeps a `data_ptr` from before the copy writes into both. Take pointers anew for each use;
//   - `data_ptr` counts as a write, whatever it is used for: read by `const_data_ptr`;
//   - the numbers of the one that writes move: no place of them may be known to others (graphs of CUDA, packed weights).
// So it is for tensors whose writers one knows: those of a plugin itself.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_lazy_clone.h>
#include <c10/core/impl/COW.h>

namespace trainyard {

/// Returns a tensor of its own, detached, with the numbers of `tensor`. Memory that is not LibTorch's own, as
/// that of at::from_blob, is copied at once.
inline at::Tensor lazy_copy(const at::Tensor& tensor) {
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const bool shareable =
      c10::impl::cow::has_simple_data_ptr(storage) || c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
  return shareable ? at::_lazy_clone(tensor.detach()) : tensor.detach().clone();
}

/// A tensor with the semantics of a number: a copy is independent, and is made on the thread that may write
/// its source. Several threads may write copies, each its own, whoever shares the numbers.
class TensorValue {
 public:
  explicit TensorValue(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  TensorValue(const TensorValue& other) : tensor_(lazy_copy(other.tensor_)) {}
  TensorValue(TensorValue&&) noexcept = default;
  TensorValue& operator=(const TensorValue& other) {
    if (this != &other) tensor_ = lazy_copy(other.tensor_);
    return *this;
  }
  TensorValue& operator=(TensorValue&&) noexcept = default;
  ~TensorValue() = default;

  const at::Tensor& operator*() const { return tensor_; }
  const at::Tensor* operator->() const { return &tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace trainyard
