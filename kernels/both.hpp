// Marks code that runs on the host and, compiled by nvcc, on CUDA devices, too.
#pragma once

#ifdef __CUDACC__
#define TRAINYARD_BOTH __host__ __device__
#else
#define TRAINYARD_BOTH
#endif
