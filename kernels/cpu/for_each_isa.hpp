// Has a function compiled for each instruction set, of which the loader takes the best that the processor has.
#pragma once

// Sanitizers instrument what chooses, which runs before their own start-up code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRAINYARD_FOR_EACH_ISA
#else
#define TRAINYARD_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
