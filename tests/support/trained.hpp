// Runs of `trainyard train` in this process, from its beginning to its result, and what they leave behind.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <trainyard/formats/trial_files.hpp>

#include "core/engine/verbs/commands.hpp"
#include "core/runfile/print.hpp"
#include "support/files.hpp"
#include "support/folder.hpp"
#include "support/live.hpp"

namespace trainyard::test {

/// A run of `trainyard train` in a folder of its own, which can be gone on with.
class Trained {
 public:
  int train(const std::string& text, std::vector<std::string> sets = {}) {
    sets.push_back("run.output_dir=" + directory());
    config::RunConfig config = test::config_of(text, sets, registry());
    train::TrainOptions options;
    options.quiet = true;
    options.resolved_toml = config::toml_file(config.resolved);
    return train::train_command(std::move(config), registry(), options);
  }
  std::string directory() const { return folder_ / "run"; }
  std::string operator/(const std::string& name) const { return directory() + "/" + name; }
  nlohmann::json result() const { return nlohmann::json::parse(test::read_file(*this / "result.json")); }
  std::string digest() const { return result()["digest"].dump(); }
  TrialReader trial() const { return TrialReader(*this / "trial"); }
  std::vector<std::string> journal(const std::string& what) const {
    std::vector<std::string> why;
    for (const std::string& line : test::lines(*this / "journal.jsonl"))
      if (const nlohmann::json entry = nlohmann::json::parse(line); entry["what"] == what)
        why.push_back(entry["why"]);
    return why;
  }
  /// What the messages of the run say.
  std::string log() const { return test::read_file(*this / "run.log"); }
  /// The values of a metric of training, one a step.
  std::vector<double> metric(const std::string& name) const {
    std::vector<double> values;
    for (const std::string& line : test::lines(*this / "metrics.jsonl")) {
      const nlohmann::json json = nlohmann::json::parse(line);
      const nlohmann::json flat = json.flatten();
      for (const auto& [key, value] : flat.items())
        if (key.ends_with("/" + name) || key == "/" + name)
          if (value.is_number()) values.push_back(value);
    }
    return values;
  }
  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
};

}  // namespace trainyard::test
