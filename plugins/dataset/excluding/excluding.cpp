// Leaves rows of another dataset out of training: those that a file of scores flags. Samples keep their numbers, so that
// `take`, folds and the file mean the same rows; the host leaves the flagged ones out of the training split.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "../by_row.hpp"
#include "../staged_around.hpp"
#include "lib/fnv1a.hpp"

namespace {

using namespace trainyard;
using Samples = std::vector<std::int64_t>;

class Excluding final : public datasets::StagedAround {
 public:
  struct Options {
    PluginList<Dataset> of;
    std::string exclude;
  };
  static void describe(Manifest<Options>& m) {
    m.name("excluding")
        .version("1.0.0")
        .summary("Leaves rows of a dataset out of training: those that a file flags.");
    m.option("of", &Options::of, "the dataset, one table, as in [{ type = \"csv\", ... }]").required();
    m.option("exclude", &Options::exclude,
             "CSV file with columns row, from 1, and outlier, 0 or 1, as `trainyard screen` writes it: rows "
             "with 1 are left out of training; other splits keep theirs; empty: none is left out")
        .file();
  }
  explicit Excluding(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    make_within(host(), options_.of);
    trains_ = split == "train" && !options_.exclude.empty();
    if (trains_) read_flags();
    open_within(split, trains_ ? TakenSamples([this](std::int64_t size) { return left(size); }) : taken());
    if (trains_) tell(taken_of(size()).size() - left(size()).size());
  }

  Samples ungraded() const override {
    Samples both;
    std::ranges::set_union(StagedAround::ungraded(), flagged_, std::back_inserter(both));
    return both;
  }
  /// What the dataset within learned, and which rows it did not learn from.
  Table learned() const override {
    Table table;
    table.set("of", StagedAround::learned());
    table.set("left_out", digest_of(flagged_));
    return table;
  }
  void use(const Table& learned) override {
    const Value *const of = learned.find("of"), *const left_out = learned.find("left_out");
    if (of == nullptr || of->get_if<Table>() == nullptr || left_out == nullptr ||
        left_out->get_if<std::string>() == nullptr)
      throw DataError("what was learned of the training split is damaged: train the run anew");
    if (!of->as<Table>().empty()) StagedAround::use(of->as<Table>());
    left_out_before_ = left_out->as<std::string>();
  }

 private:
  void read_flags() {
    const std::vector<double> flags =
        datasets::read_by_row(options_.exclude, "outlier", {1.0, true, "0, or 1 for a row to leave out"});
    rows_ = std::ssize(flags);
    for (std::int64_t i = 0; i < rows_; ++i)
      if (flags[static_cast<std::size_t>(i)] == 1.0) flagged_.push_back(i);
  }
  static std::string digest_of(const Samples& samples) {
    lib::Fnv1a sum;
    for (const std::int64_t sample : samples) sum.update(std::to_string(sample) + ' ');
    return sum.hex();
  }

  Samples taken_of(std::int64_t size) const {
    if (taken()) return taken()(size);
    Samples all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    return all;
  }
  /// Samples that the split takes and that no row of the file takes out.
  Samples left(std::int64_t size) const {
    Samples samples = taken_of(size), rest;
    if (!trains_) return samples;
    if (rows_ != size)
      throw DataError(options_.exclude + " has " + std::to_string(rows_) +
                      " rows, and the data of the training split " + std::to_string(size) +
                      ": screen this very data (trainyard screen)");
    std::ranges::set_difference(samples, flagged_, std::back_inserter(rest));
    if (rest.empty())
      throw DataError(options_.exclude + " flags all " + std::to_string(samples.size()) +
                      " samples of the training split: none is left");
    return rest;
  }
  void tell(std::size_t count) {
    const std::string text = std::to_string(count) + " of " + std::to_string(taken_of(size()).size()) +
                             " samples are left out of training: those that " + options_.exclude + " flags";
    host().log(LogLevel::info, text);
    host().journal("left_out", text);
    if (!left_out_before_.empty() && left_out_before_ != digest_of(flagged_))
      host().log(LogLevel::warning, options_.exclude + " flags other rows than when the run began");
  }

  Options options_;
  bool trains_ = false;
  std::int64_t rows_ = 0;        ///< of the file, where the split is for training
  Samples flagged_;              ///< in it, ascending
  std::string left_out_before_;  ///< digest of the rows that were left out where the run began
};

}  // namespace

TRAINYARD_PLUGIN(Excluding)
