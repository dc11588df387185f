// Which classes are taken for which: a table of counts after each evaluation, a row a class, a column what the network
// says, in the log and, for `trainyard report`, in the run's folder. As values the diagonal: the share of each class
// that is said to be of it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/host.hpp>
#include <trainyard/mixins/reads_dataset.hpp>
#include <trainyard/new_data.hpp>
#include <trainyard/ranks.hpp>

#include "class_counts.hpp"
#include "lib/new_file.hpp"
#include "lib/words.hpp"

namespace {

using namespace trainyard;

class Confusion final : public Metric, public ReadsDataset {
 public:
  struct Options {
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("confusion")
        .version("1.0.0")
        .summary(
            "Table of classes and what they are taken for, in the log after each evaluation and in the "
            "report; "
            "recall of each class.");
    metrics::describe_ignore_index(m);
    m.hook<&Confusion::show>(Event::eval_end);
  }
  explicit Confusion(const Options& options) : options_(options) {}

  /// "confusion.yes"; numbers of the classes where their names are none that a metric can have.
  std::vector<std::string> names() const override {
    const bool plain = !labels_.empty() && std::all_of(labels_.begin(), labels_.end(), is_plain);
    std::vector<std::string> names;
    for (std::int64_t c = 0; c < classes_; ++c) names.push_back(plain ? label(c) : std::to_string(c));
    return names;
  }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_class_scores("metric confusion", output, schema);
    constexpr std::int64_t most = 1000;
    if (schema.classes > most)
      throw ConfigError("metric confusion is for " + std::to_string(most) +
                        " classes at most, and the data has " + std::to_string(schema.classes) +
                        ": take recall, precision or f1");
    classes_ = schema.classes;
  }
  void read_dataset(const Dataset& training) override {
    if (const auto* const names = dynamic_cast<const ReadsNewData*>(&training))
      labels_ = names->class_names();
    if (std::ssize(labels_) != classes_) labels_.clear();
  }

  void reset() override { counts_.reset(); }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const metrics::Said all = metrics::said_of(output, batch.target, options_.ignore_index);
    add(at::zeros({all.classes * all.classes}, all.counts.options())
            .scatter_add_(0, all.target.mul(all.classes).add(all.said), all.counts)
            .reshape({all.classes, all.classes}));
  }

  std::vector<double> compute() const override {
    std::vector<double> recalls(static_cast<std::size_t>(classes_), std::numeric_limits<double>::quiet_NaN());
    const Table table = counts();
    for (std::size_t c = 0; c < std::min(recalls.size(), table.rows.size()); ++c)
      if (table.targets[c] > 0)
        recalls[c] = static_cast<double>(table.rows[c][c]) / static_cast<double>(table.targets[c]);
    return recalls;
  }

  void save(StateWriter& state) const override {
    if (counts_.defined()) state.tensor("counts", counts_.cpu());
  }
  void merge(const StateReader& other) override {
    if (other.has_tensor("counts")) add(other.tensor("counts"));
  }

  /// The counts are those of all ranks by now.
  void show(StepContext& context) {
    const Table table = counts();
    if (table.rows.empty() || (host().run().ranks != nullptr && host().run().ranks->rank() != 0)) return;
    const std::string split(context.split());
    constexpr std::size_t widest = 20;  // classes that a table in a terminal has room for
    table.rows.size() <= widest ? show_table(split, table) : show_largest(split, table);
    constexpr std::size_t widest_page = 100;
    if (table.rows.size() <= widest_page) write(split, context.clock().step, lines_of(table));
  }

 private:
  struct Table {
    std::vector<std::vector<std::int64_t>> rows;  ///< [target][said]
    std::vector<std::int64_t> targets, said;      ///< their sums
  };
  using Cells = std::vector<std::string>;

  void add(const at::Tensor& counts) {
    if (counts_.defined())
      counts_.add_(counts.to(counts_.device()));
    else
      counts_ = counts.clone();
  }

  Table counts() const {
    Table table;
    if (!counts_.defined()) return table;
    const at::Tensor all = counts_.cpu().contiguous();
    const auto* cell = all.const_data_ptr<std::int64_t>();
    const auto classes = static_cast<std::size_t>(all.size(0));
    table.targets.resize(classes);
    table.said.resize(classes);
    for (std::size_t t = 0; t < classes; ++t, cell += classes) {
      table.rows.emplace_back(cell, cell + classes);
      for (std::size_t s = 0; s < classes; ++s) {
        table.targets[t] += cell[s];
        table.said[s] += cell[s];
      }
    }
    return table;
  }

  static bool is_plain(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == ' ';
    });
  }
  std::string label(std::int64_t c) const {
    return labels_.empty() ? std::to_string(c) : labels_[static_cast<std::size_t>(c)];
  }
  static std::string percent(std::int64_t part, std::int64_t of) {
    if (of == 0) return "-";
    const std::int64_t tenths = (2000 * part + of) / (2 * of);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + "%";
  }

  std::vector<Cells> lines_of(const Table& table) const {
    std::vector<Cells> lines = {{"target \\ said"}};
    const auto classes = std::ssize(table.rows);
    for (std::int64_t c = 0; c < classes; ++c) lines[0].push_back(label(c));
    lines[0].push_back("recall");
    for (std::size_t t = 0; t < table.rows.size(); ++t) {
      lines.push_back({label(static_cast<std::int64_t>(t))});
      for (const std::int64_t count : table.rows[t]) lines.back().push_back(std::to_string(count));
      lines.back().push_back(percent(table.rows[t][t], table.targets[t]));
    }
    lines.push_back({"precision"});
    for (std::size_t s = 0; s < table.rows.size(); ++s)
      lines.back().push_back(percent(table.rows[s][s], table.said[s]));
    return lines;
  }

  void show_table(const std::string& split, const Table& table) const {
    say(split + ":");
    for (const std::string& line : aligned(lines_of(table))) say(line);
  }

  void write(const std::string& split, std::int64_t step, std::vector<Cells> lines) const {
    const std::filesystem::path folder = std::filesystem::path(host().run().directory) / "report";
    std::error_code none;
    std::filesystem::create_directories(folder, none);
    lib::NewFile made(folder / (split + "_confusion.tsv"));
    std::ofstream file(made.temporary());
    lines[0][0] += ", step " + std::to_string(step);
    for (Cells& cells : lines) {
      for (std::string& cell : cells) std::replace(cell.begin(), cell.end(), '\t', ' ');
      file << lib::join(cells, "\t") << '\n';
    }
    file.close();
    if (!file || made.put_in_place())
      host().log(LogLevel::warning, "the table for the report cannot be written to " + folder.string());
  }

  /// The first column to the left, numbers to the right.
  static Cells aligned(const std::vector<Cells>& lines) {
    std::vector<std::size_t> widths(lines.front().size());
    for (const Cells& line : lines)
      for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    Cells texts;
    for (const Cells& line : lines) {
      std::string text = line[0] + std::string(widths[0] - line[0].size(), ' ');
      for (std::size_t i = 1; i < line.size(); ++i)
        text += std::string(2 + widths[i] - line[i].size(), ' ') + line[i];
      texts.push_back(std::move(text));
    }
    return texts;
  }

  void show_largest(const std::string& split, const Table& table) const {
    constexpr std::size_t most = 10;
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> largest;  // -count, target, said
    for (std::size_t t = 0; t < table.rows.size(); ++t)
      for (std::size_t s = 0; s < table.rows.size(); ++s)
        if (t != s && table.rows[t][s] > 0)
          largest.emplace_back(-table.rows[t][s], static_cast<std::int64_t>(t), static_cast<std::int64_t>(s));
    std::sort(largest.begin(), largest.end());
    say(split + ": " + std::to_string(largest.size()) + " pairs of classes are taken for each other" +
        (largest.size() > most ? ", most often these:"
         : largest.empty()     ? ""
                               : ":"));
    for (std::size_t i = 0; i < std::min(most, largest.size()); ++i) {
      const auto& [count, target, said] = largest[i];
      say(std::to_string(-count) + " of " + std::to_string(table.targets[static_cast<std::size_t>(target)]) +
          " \"" + label(target) + "\" are said to be \"" + label(said) + "\"");
    }
  }

  void say(const std::string& line) const { host().log(LogLevel::info, line); }

  Options options_;
  mutable std::int64_t classes_ = 0;
  std::vector<std::string> labels_;  ///< of the classes; empty: they have none
  at::Tensor counts_;                ///< [target, said], int64
};

}  // namespace

TRAINYARD_PLUGIN(Confusion)
