#include "core/programs/prometheus.hpp"

#include <cmath>
#include <vector>

#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return lib::shortest(value);
}

std::string label(const std::string& name, const std::string& value) {
  std::string text = name + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text + '"';
}

class Page {
 public:
  explicit Page(const control::Status& status) : run_(label("run", status.run)) {}

  void head(const std::string& name, const char* type, const char* help) {
    name_ = "trainyard_" + name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n";
  }
  void value(double value, const std::vector<std::string>& labels = {}) {
    text_ += name_ + "{" + run_;
    for (const std::string& each : labels) text_ += "," + each;
    text_ += "} " + number(value) + "\n";
  }
  void one(const std::string& name, const char* type, const char* help, double of) {
    head(name, type, help);
    value(of);
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string run_, name_, text_;
};

}  // namespace

std::string prometheus_text(const control::Status& status) {
  Page page(status);
  page.one("steps_total", "counter", "Optimizer steps done.", static_cast<double>(status.step));
  if (status.total_steps > 0)
    page.one("steps_planned", "gauge", "Optimizer steps of the whole run.",
             static_cast<double>(status.total_steps));
  page.one("epoch", "gauge", "Epoch that the run is in, from 0.", static_cast<double>(status.epoch));
  page.one("samples_per_second", "gauge", "Since the last record of the training.",
           status.samples_per_second);
  page.one("training_seconds_total", "counter", "Since the run began.", status.seconds);
  if (status.seconds_left) page.one("seconds_left", "gauge", "Until the run ends.", *status.seconds_left);
  page.one("paused", "gauge", "1 while the run is held.", status.state == control::RunState::paused ? 1 : 0);
  page.one("retired_plugins", "gauge", "Plugins that were replaced and stay in memory.",
           static_cast<double>(status.retired));
  page.head("metric", "gauge", "Last value of each metric of the run.");
  for (const auto& [name, value] : status.metrics) page.value(value, {label("name", name)});
  page.head("plugin_seconds_total", "counter", "Seconds in the calls of the plugin of a slot.");
  for (const control::Status::Slot& slot : status.slots)
    page.value(slot.seconds, {label("slot", slot.slot), label("plugin", slot.type)});
  page.head("swaps_total", "counter", "Plugins that filled the slot before.");
  for (const control::Status::Slot& slot : status.slots)
    page.value(static_cast<double>(slot.swaps), {label("slot", slot.slot)});
  return std::move(page).text();
}

}  // namespace trainyard::cli
