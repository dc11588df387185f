# Finds LibTorch and defines the target Trainyard::torch.
# TRAINYARD_LIBTORCH: the folder that holds include/ and lib/ (CMake variable or environment), else what
# tools/setup fetched.
if(NOT TRAINYARD_LIBTORCH)
  if(DEFINED ENV{TRAINYARD_LIBTORCH})
    set(TRAINYARD_LIBTORCH $ENV{TRAINYARD_LIBTORCH})
  else()
    set(TRAINYARD_LIBTORCH ${CMAKE_SOURCE_DIR}/.deps/torch)
  endif()
endif()
set(TRAINYARD_LIBTORCH ${TRAINYARD_LIBTORCH} CACHE PATH "folder of LibTorch: include/ and lib/" FORCE)
set(version_header ${TRAINYARD_LIBTORCH}/include/torch/headeronly/version.h)
if(NOT EXISTS ${version_header} OR NOT EXISTS ${TRAINYARD_LIBTORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch at '${TRAINYARD_LIBTORCH}': run tools/setup, or set TRAINYARD_LIBTORCH to a "
                      "folder that holds include/torch and lib/libtorch_cpu.so")
endif()
file(STRINGS ${version_header} version_line REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
string(REGEX REPLACE "[^0-9]+" "." version_digits "${version_line}")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TRAINYARD_LIBTORCH_VERSION "${version_digits}")

if(TARGET Trainyard::torch)
  return()  # found before, by another project of the same build
endif()
add_library(Trainyard::torch INTERFACE IMPORTED GLOBAL)
set_target_properties(Trainyard::torch PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${TRAINYARD_LIBTORCH}/include;${TRAINYARD_LIBTORCH}/include/torch/csrc/api/include"
  INTERFACE_LINK_LIBRARIES "${TRAINYARD_LIBTORCH}/lib/libtorch_cpu.so;${TRAINYARD_LIBTORCH}/lib/libc10.so"
  # libtorch_cpu.so itself needs CUDA's runtime, which the loader finds and the linker need not.
  INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
