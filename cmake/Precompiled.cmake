# Headers of LibTorch and of the standard library, compiled once for the engine and all plugins, once for programs, and once for
# the SDK, whose symbols are visible. A unit still includes what it uses: tools/lint reads each without them. They hold for the
# flags that they were made with alone. The front has none: what costs time there is code, not reading.
#   trainyard_use_precompiled(TARGET)

file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/empty.cpp CONTENT "")
set(precompiled_headers <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <filesystem> <fstream> <functional>
  <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <thread> <utility> <variant> <vector> <ATen/ATen.h>
  <ATen/Parallel.h>)
foreach(which libraries programs)
  add_library(precompiled_${which} OBJECT ${CMAKE_BINARY_DIR}/precompiled/empty.cpp)
  target_link_libraries(precompiled_${which} PRIVATE Trainyard::torch)
endforeach()
target_precompile_headers(precompiled_libraries PRIVATE ${precompiled_headers})
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
  target_precompile_headers(${target} REUSE_FROM precompiled_libraries)
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
endfunction()
