#include "core/engine/train/view.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

namespace trainyard::train {
namespace {

std::int64_t length_of(const std::string& key, const config::Take& take, std::int64_t size) {
  if (take.percent)
    return static_cast<std::int64_t>(std::floor(static_cast<double>(size) * take.count / 100.0));
  if (take.count <= static_cast<double>(size)) return static_cast<std::int64_t>(take.count);
  throw ConfigError(key + " asks for " + std::to_string(static_cast<std::int64_t>(take.count)) +
                    " samples, and there are " + std::to_string(size));
}

/// Returns the samples of some folds. Their places in each block are drawn by Fisher and Yates's shuffle.
std::vector<std::int64_t> of_folds(const config::Take& take, std::int64_t size) {
  const RandomStream blocks(0, "folds");
  std::vector<std::int64_t> samples, fold_at(static_cast<std::size_t>(take.folds));
  for (std::int64_t block = 0; block * take.folds < size; ++block) {
    std::iota(fold_at.begin(), fold_at.end(), 0);
    const RandomStream random = blocks.at(static_cast<std::uint64_t>(block));
    for (std::uint64_t last = fold_at.size() - 1; last > 0; --last)
      std::swap(fold_at[last], fold_at[random.below(last, last + 1)]);
    for (std::int64_t place = 0; place < take.folds && block * take.folds + place < size; ++place) {
      const std::int64_t fold = fold_at[static_cast<std::size_t>(place)];
      if ((fold >= take.fold && fold <= take.last_fold) != take.all_but)
        samples.push_back(block * take.folds + place);
    }
  }
  return samples;
}

}  // namespace

View::View(const std::string& key, const config::Take& take, std::int64_t size) {
  if (take.part == config::Take::Part::fold) {
    left_ = of_folds(take, size);
    size_ = std::ssize(left_);
  } else {
    const std::int64_t length = length_of(key, take, size);
    const bool begins = (take.part == config::Take::Part::first) != take.all_but;
    size_ = take.all_but ? size - length : length;
    first_ = begins ? 0 : size - size_;
  }
  if (size_ == 0) throw ConfigError(key + " leaves none of the " + std::to_string(size) + " samples");
}

void View::leave_out(const std::string& split, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> left = this->samples();
  std::erase_if(left, [&](std::int64_t each) { return std::ranges::binary_search(samples, each); });
  if (left.empty())
    throw DataError("none of the " + std::to_string(size_) + " samples of " + split +
                    " can be graded: the training split has nothing like them");
  size_ = std::ssize(left);
  left_ = std::move(left);
}

std::vector<std::int64_t> View::samples() const {
  std::vector<std::int64_t> all;
  for (std::int64_t sample = 0; sample < size_; ++sample) all.push_back((*this)[sample]);
  return all;
}

std::int64_t View::operator[](std::int64_t sample) const {
  if (!left_.empty()) return left_[static_cast<std::size_t>(sample)];
  return first_ + sample;
}

std::vector<std::int64_t> View::of(const std::vector<std::int64_t>& all) const {
  std::vector<std::int64_t> part;
  if (all.empty()) return part;
  for (const std::int64_t sample : samples()) part.push_back(all[static_cast<std::size_t>(sample)]);
  return part;
}

}  // namespace trainyard::train
