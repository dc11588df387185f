# The package that find_package(Trainyard) finds: installed (`cmake --install BUILD --component sdk` installs it alone), and in
# the build tree, so that a plugin can be built against a checkout whose bin/ is on the PATH.
include(CMakePackageConfigHelpers)
set(package lib/cmake/Trainyard)
set_target_properties(trainyard PROPERTIES EXPORT_NAME sdk INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib;$ORIGIN/../../torch/lib;${TRAINYARD_LIBTORCH}/lib")
set_target_properties(trainyard_formats PROPERTIES EXPORT_NAME formats)
set_target_properties(trainyard_manifest PROPERTIES EXPORT_NAME manifest)
set_target_properties(trainyard_testing PROPERTIES EXPORT_NAME testing)
install(TARGETS trainyard trainyard_formats trainyard_manifest trainyard_testing EXPORT TrainyardTargets LIBRARY DESTINATION lib COMPONENT sdk
        ARCHIVE DESTINATION lib COMPONENT sdk)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION include COMPONENT sdk)
install(EXPORT TrainyardTargets NAMESPACE Trainyard:: DESTINATION ${package} COMPONENT sdk)
set(helpers ${CMAKE_CURRENT_LIST_DIR}/TrainyardLibTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/TrainyardAddPlugin.cmake
            ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
set(headers include)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TrainyardConfig.cmake.in
  ${CMAKE_BINARY_DIR}/installed/TrainyardConfig.cmake INSTALL_DESTINATION ${package} PATH_VARS headers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/installed/TrainyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/installed/TrainyardConfig.cmake ${CMAKE_BINARY_DIR}/installed/TrainyardConfigVersion.cmake ${helpers}
        DESTINATION ${package} COMPONENT sdk)

# The build tree, laid out as the installation is.
set(tree ${CMAKE_BINARY_DIR}/${package})
set(headers ${TRAINYARD_INCLUDE})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TrainyardConfig.cmake.in ${tree}/TrainyardConfig.cmake
  INSTALL_DESTINATION ${package} INSTALL_PREFIX ${CMAKE_BINARY_DIR} PATH_VARS headers)
write_basic_package_version_file(${tree}/TrainyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(COPY ${helpers} DESTINATION ${tree})
export(EXPORT TrainyardTargets NAMESPACE Trainyard:: FILE ${tree}/TrainyardTargets.cmake)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/trainyard)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/templates ${CMAKE_BINARY_DIR}/share/trainyard/templates SYMBOLIC)
