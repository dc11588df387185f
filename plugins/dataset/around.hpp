// What a dataset that stands around another one hands on of it: files that are not the run's, names of classes, the scale
// of targets, and what it learns.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/new_data.hpp>

namespace datasets {

class AroundAnother : public trainyard::Learns,
                      public trainyard::ReadsNewData,
                      public trainyard::ScalesTargets {
 public:
  trainyard::Table learned() const override {
    const auto* const learns = within_as<trainyard::Learns>();
    return learns != nullptr ? learns->learned() : trainyard::Table();
  }
  std::vector<std::int64_t> ungraded() const override {
    const auto* const learns = within_as<trainyard::Learns>();
    return learns != nullptr ? learns->ungraded() : std::vector<std::int64_t>();
  }
  std::unique_ptr<trainyard::NewData> read_new(const std::string& path) const override {
    if (const auto* const reader = within_as<trainyard::ReadsNewData>()) return reader->read_new(path);
    throw trainyard::ConfigError("of: the dataset \"" + type_ + "\" cannot read data that is not the run's");
  }
  std::vector<std::string> class_names() const override {
    const auto* const reader = within_as<trainyard::ReadsNewData>();
    return reader != nullptr ? reader->class_names() : std::vector<std::string>();
  }
  std::pair<double, double> target_scale() const override {
    const auto* const scales = within_as<trainyard::ScalesTargets>();
    return scales != nullptr ? scales->target_scale() : std::pair(1.0, 0.0);
  }

 protected:
  /// Makes the dataset of the option `of`, which is to have one table. Throws ConfigError.
  void make_within(trainyard::Host& host, const trainyard::PluginList<trainyard::Dataset>& of) {
    if (of.tables.size() != 1)
      throw trainyard::ConfigError("of has " + std::to_string(of.tables.size()) + " datasets: give one");
    type_ = of.tables.front().find("type")->as<std::string>();
    within_ = std::move(trainyard::make_plugins(host, of).front());
  }
  trainyard::Dataset& within() const { return *within_; }
  template <class Interface>
  Interface* within_as() const {
    return dynamic_cast<Interface*>(within_.get());
  }
  const std::string& type_within() const { return type_; }

 private:
  std::unique_ptr<trainyard::Dataset> within_;
  std::string type_;
};

}  // namespace datasets
