# Plugins of one file each, compiled up to eight to a unit where CMAKE_UNITY_BUILD says so: a plugin takes a second then, and by
# itself five. Each is still a shared object of its own: it is linked of its unit's object and of an entry that calls the plugin's,
# and the linker leaves out what that does not reach. So a name in an anonymous namespace is one of the family, and an object of
# static storage whose constructor runs as the library loads is in each plugin of its unit. The seal of a plugin names the headers
# that its unit saw.
#   trainyard_family(PREFIX [PRECOMPILED which] [LIBRARIES library...] SOURCES source...)
# It sets parts_PREFIX_NAME to what trainyard_add_plugin() builds the plugin of PREFIX/NAME.cpp of, SOURCES and objects.
function(trainyard_family prefix)
  cmake_parse_arguments(FAMILY "" "PRECOMPILED" "LIBRARIES;SOURCES" ${ARGN})
  list(LENGTH FAMILY_SOURCES count)
  if(NOT CMAKE_UNITY_BUILD OR count LESS 2)
    return()
  endif()
  string(JOIN _ family family ${prefix} ${FAMILY_PRECOMPILED})
  math(EXPR units "(${count} + 7) / 8")
  set(unit 0)
  foreach(source IN LISTS FAMILY_SOURCES)
    math(EXPR unit "${unit} % ${units} + 1")
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET source STEM name)
    string(APPEND text_${unit} "#define TRAINYARD_ENTRY trainyard_plugin_${name}\n#include \"${source}\"\n#undef TRAINYARD_ENTRY\n")
    set(entry ${CMAKE_CURRENT_BINARY_DIR}/${family}/${name}.cpp)
    file(CONFIGURE OUTPUT ${entry} CONTENT "extern \"C\" const void* trainyard_plugin_${name}();
extern \"C\" __attribute__((visibility(\"default\"))) const void* trainyard_plugin() { return trainyard_plugin_${name}(); }\n")
    set(parts_${prefix}_${name} ${entry} $<TARGET_OBJECTS:${family}_${unit}> PARENT_SCOPE)
  endforeach()
  foreach(unit RANGE 1 ${units})
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${family}_${unit}.cpp CONTENT "${text_${unit}}")
    add_library(${family}_${unit} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${family}_${unit}.cpp)
    target_link_libraries(${family}_${unit} PRIVATE Trainyard::sdk ${FAMILY_LIBRARIES})
    target_include_directories(${family}_${unit} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    set_target_properties(${family}_${unit} PROPERTIES UNITY_BUILD OFF)
    if(FAMILY_PRECOMPILED)
      trainyard_use_precompiled(${family}_${unit} ${FAMILY_PRECOMPILED})
    endif()
  endforeach()
endfunction()

# Makes a plugin of a file, of its family where it has one. TARGET is PREFIX_NAME.
function(trainyard_add_test_plugin target name kind source)
  if(DEFINED parts_${target})
    trainyard_add_plugin(${target} NAME ${name} KIND ${kind} SOURCES ${parts_${target}})
    return()
  endif()
  trainyard_add_plugin(${target} NAME ${name} KIND ${kind} SOURCES ${source})
  trainyard_precompiled_for(${source} which)
  trainyard_use_precompiled(${target} ${which})
endfunction()
