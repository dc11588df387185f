// Decodes tensors of checkpoints that a codec has made shorter. Without LibTorch, where the codec has none.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/plugins/registry.hpp"
#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {

/// Says where codecs are looked for, once one is needed. A process that reads checkpoints says so first.
void find_codecs_in(std::function<plugins::Registry()> registry);
void find_codecs_in(const plugins::Registry& registry);

/// Returns the bytes of a tensor, of which `code` is what lies in `path`. Throws DataError, which names the
/// plugin to get where it is not there. Main thread.
std::string decoded(const TensorEntry& tensor, std::string_view code, const std::string& path);

}  // namespace trainyard::checkpoint
