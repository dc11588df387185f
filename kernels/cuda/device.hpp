// The CUDA device that the kernels are for.
#pragma once

namespace trainyard::kernels::cuda {

/// Whether a device is there that the kernels were compiled for.
bool available();

}  // namespace trainyard::kernels::cuda
