# trainyard_add_plugin(TARGET [NAME name] [KIND folder] SOURCES file... [LIBRARIES library...])
# Builds libNAME.so (NAME: the target's name), of one plugin or of several (TRAINYARD_PACK), with one exported symbol, and seals
# their manifests into it. A plugin whose description is wrong fails the build. It gets no RPATH: the host has the SDK and LibTorch loaded already, and no other
# copy of them may come in. Libraries of your own go to the folder libNAME.libs beside it; set INSTALL_RPATH on the target to
# "$ORIGIN/libNAME.libs". It names the libraries that it uses
# and no others: one without LibTorch in it, as a study is, loads without.
function(trainyard_add_plugin target)
  cmake_parse_arguments(PLUGIN "" "NAME;KIND" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT PLUGIN_SOURCES OR PLUGIN_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trainyard_add_plugin(TARGET [NAME name] [KIND folder] SOURCES file... [LIBRARIES library...])")
  endif()
  if(NOT PLUGIN_NAME)
    set(PLUGIN_NAME ${target})
  endif()
  # Said where the author sees it: an optimizer took 49 s to compile with all of LibTorch, 19 s with what it uses.
  foreach(source IN LISTS PLUGIN_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    if(EXISTS ${source})
      file(STRINGS ${source} all REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"](torch/(torch|all|extension)\\.h|ATen/ATen\\.h)[>\"]")
      if(all)
        message(NOTICE "${source} includes all of LibTorch (${all}): with <ATen/core/Tensor.h> and <ATen/ops/NAME.h> for each "
          "at::NAME it compiles in less than half the time")
      endif()
    endif()
  endforeach()
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  add_library(${target} MODULE ${PLUGIN_SOURCES})
  target_link_libraries(${target} PRIVATE Trainyard::sdk ${PLUGIN_LIBRARIES})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique> -ffunction-sections -fdata-sections)
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--as-needed -Wl,-z,defs -Wl,--version-script=${map})
  set_target_properties(${target} PROPERTIES
    PREFIX lib
    OUTPUT_NAME ${PLUGIN_NAME}
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    BUILD_WITH_INSTALL_RPATH ON  # so that an installation changes no byte of it: they are digested
    LINK_DEPENDS "${map};$<TARGET_FILE:Trainyard::seal>")
  if(TRAINYARD_PLUGIN_DIR)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TRAINYARD_PLUGIN_DIR}/${PLUGIN_KIND})
  endif()
  # An installation may lie anywhere, and so may LibTorch.
  get_target_property(installed Trainyard::seal IMPORTED)
  if(installed)
    set(found ${CMAKE_COMMAND} -E env "LD_LIBRARY_PATH=${TRAINYARD_LIBTORCH}/lib:$ENV{LD_LIBRARY_PATH}")
  endif()
  add_custom_command(TARGET ${target} POST_BUILD COMMAND ${found} $<TARGET_FILE:Trainyard::seal> $<TARGET_FILE:${target}> ${TRAINYARD_INCLUDE} VERBATIM)
endfunction()

# trainyard_add_plugin_test(TARGET PLUGIN SOURCES file... [LIBRARIES library...])
# A program that tries a plugin of trainyard_add_plugin() with the fakes of trainyard/testing, known to ctest. PLUGIN_FILE is
# the path of the plugin as it was built.
function(trainyard_add_plugin_test target plugin)
  cmake_parse_arguments(TEST "" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT TEST_SOURCES OR TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trainyard_add_plugin_test(TARGET PLUGIN SOURCES file... [LIBRARIES library...])")
  endif()
  add_executable(${target} ${TEST_SOURCES})
  target_link_libraries(${target} PRIVATE Trainyard::testing ${TEST_LIBRARIES})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE PLUGIN_FILE="$<TARGET_FILE:${plugin}>")
  target_link_options(${target} PRIVATE -Wl,--no-as-needed)  # the plugin looks for no SDK and no LibTorch by itself
  add_dependencies(${target} ${plugin})
  add_test(NAME ${target} COMMAND ${target})
endfunction()
