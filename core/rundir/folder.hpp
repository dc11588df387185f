// Finds the checkpoints of a run on the disk: RUN/checkpoints/step-00000600/, and the files `latest` and, in
// a run with checkpoint.keep_best, `best`, which name one of these folders. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {

/// Returns the name of a checkpoint's folder: "step-00000600".
std::string folder_name(std::int64_t step);

/// Returns the step of a folder whose name is that of a checkpoint; nothing for any other.
std::optional<std::int64_t> step_of(const std::string& checkpoint);

/// Returns the paths of the folders named like checkpoints, oldest first, without checking that they are
/// whole. Empty if there is no such folder.
std::vector<std::string> list(const std::string& folder);

/// Returns the checkpoints that a user means, oldest first: `path` is one, a folder of some, or a run's
/// directory. Throws DataError where there is none.
std::vector<std::string> find(const std::string& path);

/// Returns the checkpoint that the file `best` of a run's directory, or of its folder of checkpoints, names;
/// nothing where there is no such file or checkpoint.
std::optional<std::string> best(const std::string& path);

/// The name of the file of final weights in a run's directory, and of the weights in a checkpoint.
inline constexpr const char* weights_name = "model.safetensors";

/// Returns the weights that a folder stands for: the final ones of a completed run, else its newest
/// checkpoint. Returns any other path unchanged.
std::string weights_in(const std::string& path);

/// Returns the weights that a user means by `word` in a run: "best" is that checkpoint, any other word a path
/// for weights_in(). Throws DataError where the run keeps no best.
std::string weights_path(const std::string& word, const std::string& run);

/// Returns the steps of the `count` checkpoints with the best values of a metric, the best first; of equal
/// ones the older is the better.
std::vector<std::int64_t> best_steps(const std::vector<std::string>& checkpoints, const std::string& metric,
                                     bool largest, std::int64_t count);

/// Renames `temporary` to `path`. A folder that is there changes places with it, in one step if the file
/// system can, so that there is always a checkpoint.
void publish(const std::string& temporary, const std::string& path, const std::string& aside);

/// Reads and checks the manifest of one checkpoint. Throws DataError.
Manifest read_manifest(const std::string& checkpoint);

/// Returns everything that is wrong with a checkpoint, one message each, naming the tensor, header or file
/// that it concerns; empty where every byte is as it was written.
std::vector<std::string> verify(const std::string& checkpoint);

/// Throws DataError if a tensor in parts is not as the ranks wrote it.
void check_parts(const std::string& checkpoint);

/// Removes what an interrupted save or removal left ("*.tmp-*" and "*.old-*"). The caller holds the run's
/// lock.
void sweep(const std::string& folder);

}  // namespace trainyard::checkpoint
