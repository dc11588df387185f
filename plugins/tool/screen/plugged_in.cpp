#include "plugged_in.hpp"

#include <utility>

#include <trainyard/error.hpp>

#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace screen {
namespace {

class PluggedIn final : public Detector {
 public:
  explicit PluggedIn(std::unique_ptr<trainyard::Detector> plugin) : plugin_(std::move(plugin)) {}

  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override {
    std::vector<double> scores = plugin_->fit(view(rows), fitting.random,
                                              [&fitting] { return fitting.stopping && fitting.stopping(); });
    fitting.check();  // what it returned after a stop is nothing
    return scores;
  }
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override {
    fitting.check();
    return plugin_->score(view(rows));
  }
  void keep(Archive& archive) override {
    if (archive.loading()) return plugin_->use(archive.all());
    for (auto& [name, values] : plugin_->learned()) {
      std::vector<double> copy = values;
      archive.list(name.c_str(), copy);
    }
  }

 private:
  static trainyard::RowTable view(const Matrix& rows) { return {rows.values, rows.rows, rows.columns}; }

  std::unique_ptr<trainyard::Detector> plugin_;
};

/// Returns options as a text that tells them apart.
std::string text_of(const trainyard::Value& value) {
  if (const auto* held = value.get_if<bool>()) return *held ? "true" : "false";
  if (const auto* held = value.get_if<std::int64_t>()) return std::to_string(*held);
  if (const auto* held = value.get_if<double>()) return trainyard::lib::shortest(*held);
  if (const auto* held = value.get_if<std::string>()) return trainyard::lib::toml_string(*held);
  std::string text;
  if (const auto* held = value.get_if<trainyard::Array>()) {
    for (const trainyard::Value& each : *held) text += (text.empty() ? "" : ", ") + text_of(each);
    return '[' + text + ']';
  }
  for (const auto& [key, each] : value.as<trainyard::Table>().entries())
    text += (text.empty() ? "" : ", ") + key + " = " + text_of(each);
  return "{ " + text + " }";
}

}  // namespace

std::vector<Given> made_detectors(trainyard::Host& host,
                                  const trainyard::PluginList<trainyard::Detector>& list) {
  std::vector<Given> given;
  for (std::unique_ptr<trainyard::Detector>& made : trainyard::make_plugins(host, list)) {
    const trainyard::Table& table = list.tables[given.size()];
    given.push_back({table.find("type")->as<std::string>(), text_of(table),
                     std::make_unique<PluggedIn>(std::move(made))});
  }
  return given;
}

}  // namespace screen
