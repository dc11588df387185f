// The programs of chains (chain_program.hpp) as text in CUDA C++, for NVRTC: a thread takes element after element, and
// what the steps make of it stays in its registers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chain_program.hpp"

namespace compiled {

/// What all kernels call, once ahead of them: the operations of kernels/cpu/chains.hpp as functions, with the NaN of
/// LibTorch's. Of CUDA's words it has __device__, __global__, blockIdx, blockDim, gridDim, threadIdx, __int_as_float.
std::string chain_functions();

/// extern "C" __global__ void NAME(long long count, float*, float*, ...): the `in_memory` operands of the program in
/// their order, each of `count` elements, none of which may be written into another; then its constants, a number each.
std::string chain_kernel_text(std::string_view name, const Program& program, std::size_t in_memory);

/// How many constants it has, whose numbers are from 0 on.
std::size_t constants_of(const Program& program);

}  // namespace compiled
