# trainyard_add_plugin(TARGET [NAME name] [KIND folder] SOURCES file... [LIBRARIES library...])
# Builds libNAME.so (NAME: the target's name) with one exported symbol, and seals its manifest into it.
set(TRAINYARD_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
function(trainyard_add_plugin target)
  cmake_parse_arguments(PLUGIN "" "NAME;KIND" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT PLUGIN_NAME)
    set(PLUGIN_NAME ${target})
  endif()
  add_library(${target} MODULE ${PLUGIN_SOURCES})
  target_link_libraries(${target} PRIVATE Trainyard::sdk ${PLUGIN_LIBRARIES})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -fno-gnu-unique)
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--version-script=${TRAINYARD_PLUGIN_MAP})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${PLUGIN_NAME}
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LINK_DEPENDS ${TRAINYARD_PLUGIN_MAP})
  if(TRAINYARD_PLUGIN_DIR)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TRAINYARD_PLUGIN_DIR}/${PLUGIN_KIND})
  endif()
  if(TARGET Trainyard::seal)
    add_custom_command(TARGET ${target} POST_BUILD COMMAND Trainyard::seal $<TARGET_FILE:${target}>)
    if(NOT PROJECT_NAME STREQUAL Trainyard OR TARGET trainyard_seal)
      add_dependencies(${target} Trainyard::seal)
    endif()
  endif()
endfunction()
