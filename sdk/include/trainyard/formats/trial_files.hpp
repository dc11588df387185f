// A trial in files, as SageMaker Debugger lays them out, so that its own reader takes them; the files are
// complete at any moment of a run, also of one that is killed.
//
//   collections/000000000/worker_0_collections.json   what is saved and when
//   events/000000000010/000000000010_worker_0.tfevents
//       tensors of step 10 (StepRecord::step); event_file.hpp
//   index/000000000/000000000010_worker_0.json
//       step / 1000 / step; written last: it makes the step there
//     { "meta": {"mode": "TRAIN", "mode_step": 9, "event_file_name": "events/..."},
//       "tensor_payload": [{"tensorname", "start_idx", "length"}],     a record of the event file
//       "shape_payload": [{"tensorname", "originalname", "shape"}],    of tensors without their values
//       "seconds": 1.25, "statistics": [{"tensorname", "shape", "numbers": [...]}] }     of our own
//   system/worker_0.jsonl      records of Mode::global, a line each: ours, too
//   training_job_end.ts        the run is over
//
// A reduction is a tensor "smdebug/reductions/NAME_OF_REDUCTION/NAME_OF_TENSOR" of one double. Files are
// written beside their place, as NAME.tmp, and renamed. Nothing is synced: what a power cut takes is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/trial.hpp>

namespace trainyard {

/// Says at which steps of a mode something is saved: those of the list, and start_step <= step < end_step
/// where step % save_interval == 0.
struct SaveConfig {
  std::int64_t save_interval = 500;
  std::int64_t start_step = 0;
  std::optional<std::int64_t> end_step;
  std::vector<std::int64_t> save_steps;

  bool due(std::int64_t step) const;
  /// Returns the first step from `step` on that is due; the largest integer where none is left.
  std::int64_t next(std::int64_t step) const;
};

/// A collection, and what is saved of its tensors. Tensors of one element are saved as they are.
struct SavedCollection : Collection {
  SaveConfig save;
  std::vector<std::string> reductions;  ///< names of `reduction`
  bool values = false;                  ///< the tensors themselves
  bool histogram = false;               ///< for TensorBoard
};

/// Says what is written of a tensor of a record.
struct Stored {
  bool value = false;
  std::vector<std::string> reductions;
};

/// One thread at a time. Everything throws DataError with the path and the system's reason.
class TrialWriter {
 public:
  /// Makes the folder and its description; steps that it holds stay.
  TrialWriter(std::string folder, const std::vector<SavedCollection>& collections, int worker = 0,
              int workers = 1);

  /// Writes a record. `stored` is asked for each tensor; statistics that are there are written in any case. A
  /// record of Mode::global becomes a line of numbers. Steps rise.
  void write(const StepRecord& record, const std::function<Stored(const TensorRecord&)>& stored);

  /// Drops the steps of this worker from `step` on, half-written files, and the mark of the end.
  void cut(std::int64_t step);

  /// Marks the run as over.
  void end();

  const std::string& folder() const { return folder_; }

 private:
  std::string event_name(std::int64_t step) const;
  std::string index_name(std::int64_t step) const;
  void write_line(const StepRecord& record);

  std::string folder_;
  std::string worker_;
};

enum class StepState : std::uint8_t { available, unavailable, not_yet_available };

/// Reads a trial, also while it is written. One thread at a time. Throws DataError.
class TrialReader {
 public:
  /// Throws where the folder holds no trial (no description).
  explicit TrialReader(std::string folder);

  /// Looks for new files. All other methods tell what was there at the last look.
  void refresh();

  bool ended() const { return ended_; }
  const std::vector<Collection>& collections() const { return collections_; }
  int workers() const { return workers_; }
  /// Returns the modes that have steps, but global.
  std::vector<Mode> modes() const;
  /// Returns the steps of a mode, rising; of Mode::global those of all, as StepRecord::step counts. A step is
  /// complete when every worker has written it, when 1000 later ones are there, or when the run is over.
  std::vector<std::int64_t> steps(Mode mode, bool with_incomplete = false) const;
  /// Returns the names of tensors, sorted: of a collection or by an expression; empty: all.
  std::vector<std::string> tensor_names(const std::string& what = {}) const;
  StepState has_passed_step(std::int64_t step, Mode mode) const;
  /// Waits until all steps are there, looking for them. Throws where one will not come, or the time is over.
  void wait_for_steps(const std::vector<std::int64_t>& steps, Mode mode, double seconds);

  /// Returns one step of a worker, with the values that were saved. Throws where it is not available.
  std::shared_ptr<const StepRecord> record(Mode mode, std::int64_t mode_step, int worker = 0) const;
  /// Returns the complete steps not taken yet, in order, those of Mode::global among them by time.
  std::vector<std::shared_ptr<const StepRecord>> take();

 private:
  struct Location {
    std::int64_t start = 0, length = 0;
  };
  struct Index {
    StepRecord record;  ///< without values
    std::string events;
    std::map<std::string, Location, std::less<>> values;
  };
  using Workers = std::map<int, Index>;

  void read_index(const std::string& path, std::int64_t step, int worker);
  void read_system();
  bool complete(std::int64_t step) const;
  std::optional<std::int64_t> step_of(Mode mode, std::int64_t mode_step) const;
  std::shared_ptr<const StepRecord> with_values(const Index& index) const;

  std::string folder_;
  std::vector<Collection> collections_;
  int workers_ = 1;
  bool ended_ = false;
  std::map<std::int64_t, Workers> steps_;
  std::map<std::pair<Mode, std::int64_t>, std::int64_t> of_mode_;  ///< StepRecord::step
  std::set<std::string> seen_;
  std::map<std::string, std::int64_t> lines_read_;  ///< bytes of the files of Mode::global
  std::vector<std::shared_ptr<const StepRecord>> system_;
  std::int64_t taken_ = -1;
};

}  // namespace trainyard
