#include "core/engine/train/state_copy.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace trainyard::train {
namespace {

constexpr std::size_t large = 64 << 10;        // bytes; smaller ones are copied faster than handed on
constexpr std::size_t piece_size = 256 << 10;  // bytes; settle() waits for pieces that others have begun

/// Returns true if one block of CPU memory holds the tensor's numbers as they are.
bool plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense();
}

/// Avoids the dispatcher, which takes longer than most of the copies.
at::Tensor empty_as(const at::Tensor& tensor) {
  return at::Tensor(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
}

at::Tensor copy_of(const at::Tensor& tensor) {
  if (!plain(tensor) || tensor.nbytes() >= large) return tensor.detach().clone();  // on all threads
  at::Tensor copy = empty_as(tensor);
  if (tensor.numel() > 0) std::memcpy(copy.data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

}  // namespace

StateCopy::StateCopy(std::vector<State> of, const Steady& steady) : states_(std::move(of)) {
  std::vector<at::Tensor*> now, beside;
  for (State& state : states_)
    for (auto& [name, tensor] : state.tensors) {
      const bool waits = plain(tensor) && tensor.nbytes() >= large && steady(state, tensor);
      (waits ? beside : now).push_back(&tensor);
    }
  std::unordered_set<const c10::StorageImpl*> written;
  if (!beside.empty())
    for (const at::Tensor* tensor : now)
      if (tensor->has_storage()) written.insert(tensor->storage().unsafeGetStorageImpl());
  for (at::Tensor* tensor : now) *tensor = copy_of(*tensor);
  for (at::Tensor* tensor : beside)
    *tensor = written.contains(tensor->storage().unsafeGetStorageImpl()) ? copy_of(*tensor) : later(*tensor);
}

at::Tensor StateCopy::later(const at::Tensor& tensor) {
  at::Tensor copy = empty_as(tensor);
  const char* from = static_cast<const char*>(tensor.const_data_ptr());
  char* to = static_cast<char*>(copy.data_ptr());
  for (std::size_t begin = 0; begin < tensor.nbytes(); begin += piece_size)
    pieces_.push_back({from + begin, to + begin, std::min(piece_size, tensor.nbytes() - begin)});
  sources_.push_back(tensor);
  return copy;
}

void StateCopy::help() {
  for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_.size();) {
    std::memcpy(pieces_[i].to, pieces_[i].from, pieces_[i].size);
    done_.fetch_add(1, std::memory_order_release);
    done_.notify_all();
  }
}

void StateCopy::settle() {
  help();
  for (std::size_t done; (done = done_.load(std::memory_order_acquire)) < pieces_.size();) done_.wait(done);
  sources_.clear();
}

const std::vector<State>& StateCopy::states() {
  settle();
  return states_;
}

}  // namespace trainyard::train
