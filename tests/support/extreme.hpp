// Made-up samples of very many classes, and the loss of sparse logits, for tests and benchmarks of models
// that sample their softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <ATen/ATen.h>

#include <trainyard/batch.hpp>
#include <trainyard/helpers/sparse_rows.hpp>

namespace trainyard::test {

/// A class has a prototype of features; a sample has some of those of its class, and some of any. The class
/// of rank r comes with a frequency of (r + 20)^-0.7.
class ExtremeData {
 public:
  struct Shape {
    std::int64_t classes = 30'000, features = 50'000;
    int prototype = 30, kept = 14, noise = 14;
  };

  ExtremeData(const Shape& shape, std::uint64_t seed) : shape_(shape), random_(seed) {
    for (std::int64_t i = 0; i < shape.classes * shape.prototype; ++i) prototypes_.push_back(feature());
    std::vector<double> weights;
    for (std::int64_t rank = 0; rank < shape.classes; ++rank)
      weights.push_back(std::pow(static_cast<double>(rank + 20), -0.7));
    classes_ = std::discrete_distribution<std::int64_t>(weights.begin(), weights.end());
  }

  BatchSchema schema() const {
    BatchSchema schema{.inputs = sparse_row_fields(shape_.features), .target = {"label", {1}, at::kLong}};
    schema.classes = shape_.classes;
    return schema;
  }

  /// The next samples, of one label each.
  Batch batch(std::int64_t size) {
    std::vector<std::int64_t> index, offsets{0}, labels;
    for (std::int64_t s = 0; s < size; ++s) {
      labels.push_back(classes_(random_));
      const auto first = static_cast<std::size_t>(labels.back() * shape_.prototype);
      std::vector<std::int64_t> own(
          prototypes_.begin() + static_cast<std::ptrdiff_t>(first),
          prototypes_.begin() + static_cast<std::ptrdiff_t>(first) + shape_.prototype);
      std::shuffle(own.begin(), own.end(), random_);
      own.resize(static_cast<std::size_t>(shape_.kept));
      std::set<std::int64_t> features(own.begin(), own.end());
      for (int i = 0; i < shape_.noise; ++i) features.insert(feature());
      index.insert(index.end(), features.begin(), features.end());
      offsets.push_back(std::ssize(index));
    }
    Batch batch;
    batch.inputs = {at::tensor(index), at::ones({std::ssize(index)}), at::tensor(offsets)};
    batch.target = at::tensor(labels).unsqueeze(1);
    batch.indices.resize(static_cast<std::size_t>(size));
    batch.weight = static_cast<double>(size);
    return batch;
  }

 private:
  std::int64_t feature() {
    return std::uniform_int_distribution<std::int64_t>(0, shape_.features - 1)(random_);
  }

  Shape shape_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> prototypes_;
  std::discrete_distribution<std::int64_t> classes_;
};

/// The mean cross entropy of sparse logits [size, classes] with the labels [size, most], -1 none, that share
/// the target; runs backward from it. Softmax is over what is stored.
inline double sparse_softmax_backward(const at::Tensor& output, const at::Tensor& labels) {
  const at::Tensor rows = output.crow_indices(), columns = output.col_indices();
  const at::Tensor values = output.detach().values(), gradient = at::empty_like(values);
  const auto* const offset = rows.const_data_ptr<std::int64_t>();
  const auto* const column = columns.const_data_ptr<std::int64_t>();
  const auto* const z = values.const_data_ptr<float>();
  const auto* const label = labels.const_data_ptr<std::int64_t>();
  auto* const g = gradient.mutable_data_ptr<float>();
  const std::int64_t size = output.size(0), most = labels.numel() / size;
  double loss = 0;
  for (std::int64_t s = 0; s < size; ++s) {
    const std::int64_t begin = offset[s], end = offset[s + 1];
    const float largest = *std::max_element(z + begin, z + end);
    float sum = 0;
    for (std::int64_t e = begin; e < end; ++e) sum += g[e] = std::exp(z[e] - largest);
    for (std::int64_t e = begin; e < end; ++e) g[e] /= sum * static_cast<float>(size);
    const std::int64_t given =
        std::count_if(label + s * most, label + (s + 1) * most, [](std::int64_t each) { return each >= 0; });
    for (std::int64_t i = s * most; i < (s + 1) * most; ++i) {
      if (label[i] < 0) continue;
      const std::int64_t e = std::lower_bound(column + begin, column + end, label[i]) - column;
      const double share = 1.0 / static_cast<double>(given * size);
      loss += share *
              (static_cast<double>(largest) + std::log(static_cast<double>(sum)) - static_cast<double>(z[e]));
      g[e] -= static_cast<float>(share);
    }
  }
  output.backward(at::_sparse_csr_tensor_unsafe(rows, columns, gradient, output.sizes()));
  return loss;
}

}  // namespace trainyard::test
