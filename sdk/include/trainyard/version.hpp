// Releases and ABI facts that a plugin and its host must share. When the number moves, says docs/versions.md.
#pragma once

#include <string>  // for the standard library's own macros

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("version.hpp");

#define TRAINYARD_SDK_VERSION "1.0"

#if !defined(TRAINYARD_LIBTORCH_VERSION)
#error "define TRAINYARD_LIBTORCH_VERSION (the CMake target Trainyard::sdk does)"
#endif

#define TRAINYARD_TEXT_(x) #x
#define TRAINYARD_TEXT(x) TRAINYARD_TEXT_(x)

// These are families, not numbers: clang says ABI 1002 and GCC 1017 for what links and runs together.
#if defined(__GXX_ABI_VERSION)
#define TRAINYARD_COMPILER "itanium-abi c++" TRAINYARD_TEXT(__cplusplus)
#else
#define TRAINYARD_COMPILER "unknown"
#endif

#if defined(_GLIBCXX_DEBUG)
#define TRAINYARD_LIBRARY "libstdc++ cxx11-abi=" TRAINYARD_TEXT(_GLIBCXX_USE_CXX11_ABI) " debug"
#elif defined(_GLIBCXX_USE_CXX11_ABI)
#define TRAINYARD_LIBRARY "libstdc++ cxx11-abi=" TRAINYARD_TEXT(_GLIBCXX_USE_CXX11_ABI)
#else
#define TRAINYARD_LIBRARY "unknown"
#endif

#if defined(__AVX512F__)
#define TRAINYARD_ISA "avx512"
#elif defined(__AVX2__)
#define TRAINYARD_ISA "avx2"
#else
#define TRAINYARD_ISA "baseline"
#endif
