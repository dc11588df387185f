// The checkpoints of a run as they lie on the disk: RUN/checkpoints/step-00000600/, and the files `latest` and, of a
// run with checkpoint.keep_best, `best` with the names of these. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {

/// "step-00000600".
std::string folder_name(std::int64_t step);

/// The step of a folder that counts as a checkpoint by its name.
std::optional<std::int64_t> step_of(const std::string& checkpoint);

/// Paths of the folders that count as checkpoints by their names, oldest first; whether they are whole is not
/// looked at. Empty where there is no such folder.
std::vector<std::string> list(const std::string& folder);

/// The checkpoints that a user means, oldest first: `path` is one, or a folder of some, or a run's directory.
/// Throws DataError where there is none.
std::vector<std::string> find(const std::string& path);

/// The one that the file `best` of a run's directory, or of its folder of checkpoints, names; nothing where there is no
/// such file, or no such checkpoint.
std::optional<std::string> best(const std::string& path);

/// What a run calls the file of the weights that it ends with, and a checkpoint that of its own.
inline constexpr const char* weights_name = "model.safetensors";

/// The weights that a folder stands for: those that a completed run ended with, else its newest checkpoint. Any other
/// path stays as it is.
std::string weights_in(const std::string& path);

/// What a user means by weights of this run: "best" is that checkpoint, everything else a path for weights_in(). Throws
/// DataError where the run keeps no best.
std::string weights_path(const std::string& word, const std::string& run);

/// Of these checkpoints, the steps of those with the best values of a metric, the best first; of equal ones the older
/// is the better.
std::vector<std::int64_t> best_steps(const std::vector<std::string>& checkpoints, const std::string& metric,
                                     bool largest, std::int64_t count);

/// Gives the folder its name. Where another has it they change places, in one step where the file system can:
/// there is no moment without a checkpoint.
void publish(const std::string& temporary, const std::string& path, const std::string& aside);

/// Reads and checks the manifest of one checkpoint. Throws DataError.
Manifest read_manifest(const std::string& checkpoint);

/// Everything that is wrong with a checkpoint, one message each with the name of the tensor, header or file
/// that it concerns; empty where every byte is as it was written.
std::vector<std::string> verify(const std::string& checkpoint);

/// Throws DataError where a tensor in parts is not as the ranks have written it.
void check_parts(const std::string& checkpoint);

/// Removes what an interrupted save or removal left: "*.tmp-*" and "*.old-*". The caller holds the run's
/// lock.
void sweep(const std::string& folder);

}  // namespace trainyard::checkpoint
