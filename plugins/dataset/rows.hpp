// What the datasets of tables share: rows of floats in memory, with a class or a number for each.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/dataset.hpp>

namespace datasets {

using namespace trainyard;

class RowDataset : public Dataset {
 public:
  std::int64_t size() const final { return static_cast<std::int64_t>(features_.size()) / width_; }

  BatchSchema schema() const final {
    BatchSchema schema;
    schema.inputs = {{"features", shape_, at::kFloat}};
    schema.target =
        classes_ > 0 ? FieldSchema{"class", {}, at::kLong} : FieldSchema{"value", {1}, at::kFloat};
    schema.classes = classes_;
    return schema;
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const final {
    const auto count = static_cast<std::int64_t>(indices.size());
    std::vector<std::int64_t> shape = {count};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    Batch batch;
    batch.inputs.push_back(at::empty(shape, at::kFloat));
    gather(indices, features_.data(), width_, batch.inputs[0].mutable_data_ptr<float>());
    if (classes_ > 0) {
      batch.target = at::empty({count}, at::kLong);
      gather(indices, class_of_.data(), 1, batch.target.mutable_data_ptr<std::int64_t>());
    } else {
      batch.target = at::empty({count, 1}, at::kFloat);
      gather(indices, value_of_.data(), 1, batch.target.mutable_data_ptr<float>());
    }
    return batch;
  }

  std::vector<std::int64_t> labels() const final { return class_of_; }

 protected:
  static std::int64_t product(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }

  std::vector<std::int64_t> shape_;  ///< of a row's features
  std::int64_t width_ = 1;           ///< its product
  std::int64_t classes_ = 0;         ///< 0: regression
  std::vector<float> features_;      ///< [size, width]
  std::vector<std::int64_t> class_of_;
  std::vector<float> value_of_;

 private:
  template <class T>
  static void gather(std::span<const std::int64_t> indices, const T* rows, std::int64_t width, T* out) {
    for (const std::int64_t index : indices) {
      std::memcpy(out, rows + index * width, static_cast<std::size_t>(width) * sizeof(T));
      out += width;
    }
  }
};

}  // namespace datasets
