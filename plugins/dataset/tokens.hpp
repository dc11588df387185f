// What the datasets of language models share: one run of tokens, read as windows whose targets are the next
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>

namespace datasets {

using namespace trainyard;

class TokenDataset : public Dataset {
 public:
  std::int64_t size() const final { return windows_in(std::ssize(tokens_)); }

  BatchSchema schema() const final {
    return {.inputs = {{"tokens", {seq_len_}, at::kLong}},
            .target = {"next_tokens", {seq_len_}, at::kLong},
            .classes = vocabulary_,
            .vocabulary = vocabulary_,
            .tokens_per_sample = seq_len_};
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const final {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch;
    batch.inputs.push_back(at::empty({count, seq_len_}, at::kLong));
    batch.target = at::empty({count, seq_len_}, at::kLong);
    auto* input = batch.inputs[0].mutable_data_ptr<std::int64_t>();
    auto* target = batch.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      const std::uint16_t* window = tokens_.data() + index * stride_;
      check(index * stride_, {window, static_cast<std::size_t>(seq_len_) + 1});
      input = std::copy(window, window + seq_len_, input);
      target = std::copy(window + 1, window + 1 + seq_len_, target);
    }
    return batch;
  }

 protected:
  /// How many samples a run of so many tokens makes.
  std::int64_t windows_in(std::int64_t tokens) const {
    return tokens <= seq_len_ ? 0 : (tokens - seq_len_ - 1) / stride_ + 1;
  }

  /// Of a window that is read, and where it begins: throws DataError where a token is none.
  virtual void check(std::int64_t /*begin*/, std::span<const std::uint16_t> /*window*/) const {}

  std::int64_t seq_len_ = 1;
  std::int64_t stride_ = 1;  ///< from the beginning of a window to the next
  std::int64_t vocabulary_ = 0;
  std::span<const std::uint16_t> tokens_;  ///< all of them
};

}  // namespace datasets
