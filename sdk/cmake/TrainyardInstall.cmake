# The package that find_package(Trainyard) finds; `cmake --install BUILD --component sdk` installs it alone.
include(CMakePackageConfigHelpers)
set(package lib/cmake/Trainyard)
set_target_properties(trainyard PROPERTIES EXPORT_NAME sdk INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib;${TRAINYARD_LIBTORCH}/lib")
set_target_properties(trainyard_formats PROPERTIES EXPORT_NAME formats)
install(TARGETS trainyard trainyard_formats EXPORT TrainyardTargets LIBRARY DESTINATION lib COMPONENT sdk
        ARCHIVE DESTINATION lib COMPONENT sdk)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION include COMPONENT sdk)
install(EXPORT TrainyardTargets NAMESPACE Trainyard:: DESTINATION ${package} COMPONENT sdk)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TrainyardConfig.cmake.in
  ${CMAKE_BINARY_DIR}/cmake/TrainyardConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/TrainyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/TrainyardConfig.cmake ${CMAKE_BINARY_DIR}/cmake/TrainyardConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/TrainyardLibTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/TrainyardAddPlugin.cmake
              ${CMAKE_CURRENT_LIST_DIR}/plugin.map
        DESTINATION ${package} COMPONENT sdk)
