// The checkpoints of a run as they lie on the disk: RUN/checkpoints/step-00000600/, and the file `latest`
// with the name of the newest. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.hpp"

namespace trainyard::checkpoint {

/// "step-00000600".
std::string folder_name(std::int64_t step);

/// Folders that count as checkpoints by their names, oldest first; whether they are whole is not looked at.
std::vector<std::string> list(const std::string& folder);

/// Reads and checks the manifest of one checkpoint. Throws DataError.
Manifest read_manifest(const std::string& checkpoint);

/// Everything that is wrong with a checkpoint, one message each with the name of the tensor, header or file
/// that it concerns; empty where every byte is as it was written.
std::vector<std::string> verify(const std::string& checkpoint);

/// Removes what an interrupted save or removal left. The caller holds the run's lock.
void sweep(const std::string& folder);

}  // namespace trainyard::checkpoint
