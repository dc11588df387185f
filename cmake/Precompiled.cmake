# Headers of LibTorch and of the standard library, compiled once for each set of flags that units come with: for the engine and
# all plugins (libraries), for plugins that compute with OpenMP (openmp), and for programs.
# A unit still includes what it uses: tools/lint reads each without them. GCC instantiates what inline functions of precompiled
# headers need in each unit anew, 1.5 s for all of ATen: those that need no more than tensors have headers with no more (tensors,
# 0.5 s). The front has none: what costs time there is code, not reading.
#   trainyard_use_precompiled(TARGET [libraries|openmp|tensors])  a program has its own

find_package(OpenMP REQUIRED)  # LibTorch has a library of the same name
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/empty.cpp CONTENT "")
set(precompiled_standard <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <filesystem> <fstream> <functional>
  <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <thread> <utility> <variant> <vector>)
set(precompiled_headers ${precompiled_standard} <ATen/ATen.h> <ATen/Parallel.h>)
foreach(which libraries openmp tensors programs)
  add_library(precompiled_${which} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/empty.cpp)
  target_link_libraries(precompiled_${which} PRIVATE Trainyard::torch)
endforeach()
target_link_libraries(precompiled_openmp PRIVATE OpenMP::OpenMP_CXX)
target_precompile_headers(precompiled_libraries PRIVATE ${precompiled_headers})
target_precompile_headers(precompiled_openmp PRIVATE ${precompiled_headers})
target_precompile_headers(precompiled_tensors PRIVATE ${precompiled_standard} <ATen/core/Tensor.h> <ATen/Parallel.h>)
# Programs that test and measure. Without Catch: LibTorch has a CHECK, too, and the unit says which stands.
set_target_properties(precompiled_programs PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(precompiled_programs PRIVATE -fPIE)  # as CMake compiles programs
target_precompile_headers(precompiled_programs PRIVATE ${precompiled_headers} <nlohmann/json.hpp>)

function(trainyard_use_precompiled target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    target_precompile_headers(${target} REUSE_FROM precompiled_programs)
    # Where their headers come so, GCC 12 takes sums of strings for copies that overlap or overflow (bug 105651).
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
    return()
  endif()
  list(APPEND ARGN libraries)
  list(GET ARGN 0 which)
  target_precompile_headers(${target} REUSE_FROM precompiled_${which})
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
endfunction()

# What a plugin of one file asks for: all of ATen where it, or a header of ours that it reads, names an operator; tensors
# alone where none does.
function(trainyard_precompiled_for source result)
  set(waiting ${source})
  set(read)
  while(waiting)
    list(POP_FRONT waiting file)
    list(APPEND read ${file})
    file(STRINGS ${file} includes REGEX "^#include ")
    foreach(include IN LISTS includes)
      if(include MATCHES "<(ATen/(ATen|ops/)|torch/)")
        set(${result} libraries PARENT_SCOPE)
        return()
      elseif(include MATCHES "\"(.*)\"")
        cmake_path(GET file PARENT_PATH folder)
        cmake_path(SET header NORMALIZE ${folder}/${CMAKE_MATCH_1})
      elseif(include MATCHES "<(trainyard/.*)>")
        set(header ${TRAINYARD_INCLUDE}/${CMAKE_MATCH_1})
      else()
        continue()
      endif()
      if(EXISTS ${header} AND NOT header IN_LIST read AND NOT header IN_LIST waiting)
        list(APPEND waiting ${header})
      endif()
    endforeach()
  endwhile()
  set(${result} tensors PARENT_SCOPE)
endfunction()
