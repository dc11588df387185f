// trainyard ckpt: lists, inspects and verifies checkpoints, without LibTorch. A path is a checkpoint, a
// folder of some, or a run's directory; where one checkpoint is meant, that is the newest of them. All throw
// DataError where there is none, or its manifest is damaged.
#pragma once

#include <ostream>
#include <string>

#include <trainyard/error.hpp>

#include "core/cli/plugins_verbs.hpp"

namespace trainyard::cli {

/// Prints one line per checkpoint; a damaged manifest is reported, not thrown.
ExitCode ckpt_ls(const std::string& path, Format format, std::ostream& out);

/// Prints everything in the manifest.
ExitCode ckpt_inspect(const std::string& path, Format format, std::ostream& out);

/// Reads every byte of every checkpoint and names all damage; returns `data` if there is any.
ExitCode ckpt_verify(const std::string& path, Format format, std::ostream& out);

/// Copies the weights of the model, checked, into one safetensors file.
ExitCode ckpt_convert(const std::string& path, const std::string& file, std::ostream& out);

}  // namespace trainyard::cli
