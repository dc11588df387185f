#include "core/engine/train/view.hpp"

#include <algorithm>
#include <cmath>

#include <trainyard/error.hpp>

namespace trainyard::train {
namespace {

std::int64_t length_of(const std::string& key, const config::Take& take, std::int64_t size) {
  if (take.percent)
    return static_cast<std::int64_t>(std::floor(static_cast<double>(size) * take.count / 100.0));
  if (take.count <= static_cast<double>(size)) return static_cast<std::int64_t>(take.count);
  throw ConfigError(key + " asks for " + std::to_string(static_cast<std::int64_t>(take.count)) +
                    " samples, and there are " + std::to_string(size));
}

}  // namespace

View::View(const std::string& key, const config::Take& take, std::int64_t size) : take_(take) {
  if (take.part == config::Take::Part::fold) {
    const std::int64_t blocks = size / take.folds, rest = size % take.folds;
    const std::int64_t fold = blocks + (rest > 0 && place_in(blocks) < rest ? 1 : 0);
    size_ = take.all_but ? size - fold : fold;
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

/// Returns the fold's place among the samples of a block: each fold has one, and each place is equally
/// likely. (Fisher and Yates's shuffle, following one card from its first place.)
std::int64_t View::place_in(std::int64_t block) const {
  const RandomStream random = folds_.at(static_cast<std::uint64_t>(block));
  std::int64_t place = take_.fold;
  for (std::int64_t last = take_.folds - 1; last > 0; --last) {
    const auto other = static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(last), static_cast<std::uint64_t>(last) + 1));
    if (place == last)
      place = other;
    else if (place == other)
      place = last;
    if (place == last) return place;  // no later swap moves it
  }
  return place;
}

std::int64_t View::operator[](std::int64_t sample) const {
  if (!left_.empty()) return left_[static_cast<std::size_t>(sample)];
  if (take_.part != config::Take::Part::fold) return first_ + sample;
  if (!take_.all_but) return sample * take_.folds + place_in(sample);
  const std::int64_t others = take_.folds - 1;
  const std::int64_t block = sample / others, place = sample % others;
  return block * take_.folds + place + (place >= place_in(block) ? 1 : 0);
}

std::vector<std::int64_t> View::of(const std::vector<std::int64_t>& all) const {
  std::vector<std::int64_t> part;
  if (all.empty()) return part;
  for (const std::int64_t sample : samples()) part.push_back(all[static_cast<std::size_t>(sample)]);
  return part;
}

}  // namespace trainyard::train
