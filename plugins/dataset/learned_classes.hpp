// Classes as a training split has them, for the datasets that learn them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>

namespace datasets {

/// Whether a split takes sample i of `size`; without `taken` it takes all.
inline std::vector<bool> mask_of(const trainyard::TakenSamples& taken, std::int64_t size) {
  std::vector<bool> mask(static_cast<std::size_t>(size), !taken);
  if (taken)
    for (const std::int64_t sample : taken(size)) mask[static_cast<std::size_t>(sample)] = true;
  return mask;
}

/// Classes of a split that no sample of the training split has: how many samples have each, and where the first is.
class UnseenClasses {
 public:
  /// `place`: "row 17", or a file.
  void add(const std::string& name, const std::string& place) {
    const auto [known, added] = found_.try_emplace(name, Found{0, place});
    ++known->second.samples;
  }
  bool empty() const { return found_.empty(); }

  /// One warning. `fate`: what becomes of the samples.
  void warn(trainyard::Host& host, const std::string& where, const std::string& fate) const {
    if (empty()) return;
    constexpr std::size_t most_named = 5;
    std::string names;
    std::size_t named = 0;
    for (const auto& [name, found] : found_) {
      if (named++ == most_named) break;
      names += (names.empty() ? "\"" : ", \"") + name + "\" (" + std::to_string(found.samples) +
               (found.samples == 1 ? " sample, " : " samples, the first of them ") + found.place + ")";
    }
    if (found_.size() > most_named)
      names += " and " + std::to_string(found_.size() - most_named) + " classes more";
    host.log(trainyard::LogLevel::warning,
             where + ": the training split has no sample of the class " + names + ": " + fate);
  }

  static constexpr const char* left_out = "evaluations leave such samples out";
  static constexpr const char* graded =
      "such samples are graded, though the network never learned their class";

 private:
  struct Found {
    std::int64_t samples = 0;
    std::string place;
  };
  std::map<std::string, Found> found_;
};

/// Classes whose labels are integers. `Labels::numbers`: a label is the number of its class, and there are as many
/// classes as the highest label of the training split says. `Labels::values`: labels are any integers, and those that
/// the training split has are classes 0, 1, ... in ascending order.
class NumberedClasses {
 public:
  enum class Labels : std::uint8_t { numbers, values };
  explicit NumberedClasses(Labels labels = Labels::numbers) : labels_(labels) {}

  /// From the labels of those samples of a training split that it takes.
  void learn(std::span<const std::int64_t> labels, const std::vector<bool>& taken) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (taken[i]) seen_.insert(labels[i]);
  }
  bool known() const { return !seen_.empty(); }
  std::int64_t count() const { return labels_ == Labels::values ? std::ssize(seen_) : *seen_.rbegin() + 1; }
  /// The class of a label; nothing where it has none below `classes`.
  std::optional<std::int64_t> class_of(std::int64_t label, std::int64_t classes) const {
    std::int64_t number = label;
    if (labels_ == Labels::values) {
      const auto found = seen_.find(label);
      number = found == seen_.end() ? classes : std::distance(seen_.begin(), found);
    }
    return number < classes ? std::optional(number) : std::nullopt;
  }

  trainyard::Table to_table() const {
    trainyard::Table table;
    table.set("format", format());
    table.set("classes", trainyard::Array(seen_.begin(), seen_.end()));
    return table;
  }
  /// Throws DataError where the table is damaged, or was written when labels were numbered in another way.
  void use(const trainyard::Table& table) {
    const trainyard::Value *const classes = table.find("classes"), *const written = table.find("format");
    const auto* const version = written == nullptr ? nullptr : written->get_if<std::int64_t>();
    if (version != nullptr && *version != format())
      throw trainyard::DataError(
          "what was learned of the classes is of another version of this plugin, which numbered them in "
          "another way: train the run anew");
    if (classes != nullptr && classes->get_if<trainyard::Array>() != nullptr)
      for (const trainyard::Value& each : classes->as<trainyard::Array>())
        if (const auto* label = each.get_if<std::int64_t>();
            label != nullptr && (*label >= 0 || labels_ == Labels::values))
          seen_.insert(*label);
    if (!known()) throw trainyard::DataError("what was learned of the classes is damaged: it names none");
  }

  /// Warns of the samples of a split that it takes and whose class training does not have; gives all samples, taken
  /// or not, that have no class below `classes`. `unit` is what a sample is called: "record". Throws DataError where a
  /// training split, which learned nothing because it was given what was learned before, takes such a sample.
  std::vector<std::int64_t> find_unseen(const std::string& split, std::span<const std::int64_t> labels,
                                        const std::vector<bool>& taken, std::int64_t classes,
                                        const std::string& unit, trainyard::Host& host) const {
    UnseenClasses beyond, graded;
    std::vector<std::int64_t> ungraded;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const bool lost = !class_of(labels[i], classes);
      if (lost) ungraded.push_back(static_cast<std::int64_t>(i));
      if (!taken[i] || seen_.contains(labels[i])) continue;
      const std::string place = unit + " " + std::to_string(i);
      if (lost && split == "train")
        throw trainyard::DataError(place + " is of class " + std::to_string(labels[i]) +
                                   ", and the run was trained with " + std::to_string(classes) + " classes" +
                                   (labels_ == Labels::values ? " that are others" : ", from 0") +
                                   ": are these the files that it was trained with?");
      (lost ? beyond : graded).add(std::to_string(labels[i]), place);
    }
    beyond.warn(host, "the split " + split, UnseenClasses::left_out);
    graded.warn(host, "the split " + split, UnseenClasses::graded);
    return ungraded;
  }

 private:
  std::int64_t format() const { return labels_ == Labels::values ? 2 : 1; }

  Labels labels_;
  std::set<std::int64_t> seen_;
};

}  // namespace datasets
