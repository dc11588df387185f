// Finds a CUDA device that the kernels can use.
#pragma once

namespace trainyard::kernels::cuda {

/// Returns whether there is a device for which the kernels were compiled.
bool available();

}  // namespace trainyard::kernels::cuda
