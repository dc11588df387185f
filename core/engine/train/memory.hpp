#pragma once

namespace trainyard::train {

/// Makes the C allocator keep large blocks instead of returning them to the system at every free. Once, at
/// the start of the engine, before threads allocate. An environment that tunes malloc itself (MALLOC_*,
/// GLIBC_TUNABLES, a preloaded allocator) has the last word.
void keep_large_blocks();

}  // namespace trainyard::train
