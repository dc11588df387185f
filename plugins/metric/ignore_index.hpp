// The option that names targets which do not count.
#pragma once

#include <trainyard/manifest.hpp>

namespace metrics {

/// Of options that have the member std::optional<std::int64_t> ignore_index.
template <class Options>
void describe_ignore_index(trainyard::Manifest<Options>& m) {
  m.option("ignore_index", &Options::ignore_index,
           "targets of this value do not count (padding); by default every target counts");
}

}  // namespace metrics
