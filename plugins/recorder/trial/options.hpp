// The table [recorder] of type "trial".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/formats/trial_files.hpp>
#include <trainyard/manifest.hpp>

namespace trial {

using namespace trainyard;

/// When something is saved; each collection may say otherwise.
struct CollectionOptions {
  std::string name;
  std::vector<std::string> include_regex;
  std::optional<std::int64_t> save_interval, start_step, end_step;
  std::vector<std::int64_t> save_steps;
  std::vector<std::string> reductions;
  bool save_raw_tensor = false;
  bool save_histogram = false;

  static void describe(Fields<CollectionOptions>& m) {
    m.option(
         "name", &CollectionOptions::name,
         "weights, biases, gradients, losses, inputs, outputs, metrics, optimizer_variables, all, or a name "
         "of your own")
        .required();
    m.option("include_regex", &CollectionOptions::include_regex,
             "expressions that find something in the names of its tensors; those of the collection of that "
             "name without it");
    m.option("save_interval", &CollectionOptions::save_interval, "as recorder.save_interval").min(1);
    m.option("start_step", &CollectionOptions::start_step, "as recorder.start_step").min(0);
    m.option("end_step", &CollectionOptions::end_step, "as recorder.end_step").min(0);
    m.option("save_steps", &CollectionOptions::save_steps, "as recorder.save_steps").min(0);
    m.option("reductions", &CollectionOptions::reductions,
             "numbers that are saved in place of its tensors; the tensors without any")
        .one_of({"min",     "max",          "mean",       "std",       "variance", "sum",
                 "prod",    "l1",           "l2",         "abs_min",   "abs_max",  "abs_mean",
                 "abs_std", "abs_variance", "abs_sum",    "abs_prod",  "abs_l1",   "abs_l2",
                 "zeros",   "nans",         "infinities", "nonfinite", "count"});
    m.option("save_raw_tensor", &CollectionOptions::save_raw_tensor, "its tensors as well as the reductions");
    m.option("save_histogram", &CollectionOptions::save_histogram,
             "histograms of its tensors, with recorder.tensorboard");
  }
};

struct Options {
  std::int64_t save_interval = 500;
  std::int64_t start_step = 0;
  std::optional<std::int64_t> end_step;
  std::vector<std::int64_t> save_steps;
  std::vector<CollectionOptions> collections;
  bool save = true;
  bool dry_run = false;
  bool tensorboard = false;
  bool system = false;
  std::int64_t queue = 500;

  static void describe(Fields<Options>& m) {
    m.option(
         "save_interval", &Options::save_interval,
         "steps between those that are saved: those that it divides, from start_step on and before end_step")
        .min(1);
    m.option("start_step", &Options::start_step, "first step of the interval, from 0").min(0);
    m.option("end_step", &Options::end_step, "first step after the interval").min(0);
    m.option("save_steps", &Options::save_steps, "steps that are saved beside those of the interval").min(0);
    m.option(
        "collections", &Options::collections,
        "what is saved: { name, include_regex, save_interval, reductions, ... }; the losses in any case");
    m.option("save", &Options::save,
             "whether anything is written, into the folder trial of the run; rules look on either way");
    m.option("dry_run", &Options::dry_run,
             "tensors are taken and rules run, but nothing is written and no "
             "action taken: what it would cost and say");
    m.option("tensorboard", &Options::tensorboard,
             "losses, metrics, reductions and histograms as TensorBoard's events, too, in trial/tensorboard");
    m.option("system", &Options::system,
             "samples the machine and the run's phases twice a second, also where no rule looks at them");
    m.option("queue", &Options::queue,
             "records that may wait for the rules, and for the disk; more are dropped, and counted")
        .range(1, 1000000);
  }
};

/// The collections that are saved, the losses among them.
std::vector<SavedCollection> saved_collections(const Options& options);
/// All collections that rules may name: those, and the default ones.
std::vector<Collection> known_collections(const std::vector<SavedCollection>& saved);

}  // namespace trial
