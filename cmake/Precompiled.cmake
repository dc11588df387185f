# Headers of LibTorch and of the standard library, compiled once for the engine and all plugins. A unit still includes what it
# uses: tools/lint reads each without them. They hold for the flags that they were made with alone. The front has none: what
# costs time there is code, not reading.
#   trainyard_use_precompiled(TARGET)

file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/empty.cpp CONTENT "")
add_library(precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled/empty.cpp)
target_link_libraries(precompiled PRIVATE Trainyard::torch)
target_precompile_headers(precompiled PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <filesystem>
  <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <thread> <utility> <variant> <vector>
  <ATen/ATen.h> <ATen/Parallel.h>)

function(trainyard_use_precompiled target)
  target_precompile_headers(${target} REUSE_FROM precompiled)
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
endfunction()
