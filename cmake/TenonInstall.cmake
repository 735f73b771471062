# Installs every tenon_library() as a component of a relocatable package: headers, archives, a CMake
# package (find_package(tenon COMPONENTS core cpu)) and pkg-config files (tenon-core, ...; `tenon` is tenon::tenon).
# Included last: it reads what all folders declared.
include(CMakePackageConfigHelpers)
include(TenonDependencies)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(staging ${PROJECT_BINARY_DIR}/package)

# pkg-config files find the prefix from where they lie, so that it can be moved.
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tenon DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.def")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# All that is installed and has to be built: without examples, tests and benchmarks.
add_custom_target(tenon_installed)
if(TARGET tenon)
  add_dependencies(tenon_installed tenon)
endif()

get_property(libraries GLOBAL PROPERTY TENON_LIBRARIES)
set(TENON_COMPONENTS "")
set(TENON_COMPONENT_TABLE "")
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^tenon_" "" name ${library})
  tenon_dependencies(${library} needs)
  list(APPEND TENON_COMPONENTS ${name})
  string(APPEND TENON_COMPONENT_TABLE
         "set(tenon_${name}_components \"${needs_components}\")\n"
         "set(tenon_${name}_packages \"${needs_packages}\")\n")

  install(TARGETS ${library} EXPORT tenon-${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT tenon-${name} NAMESPACE tenon:: DESTINATION ${package_dir}
          FILE tenon-${name}-targets.cmake)

  get_target_property(type ${library} TYPE)
  if(type STREQUAL INTERFACE_LIBRARY)
    set(PC_NAME ${name})
    set(PC_LIBS "")
  else()
    add_dependencies(tenon_installed ${library})
    set(PC_NAME tenon-${name})
    set(PC_LIBS "-L\${libdir} -ltenon_${name}")
  endif()
  list(TRANSFORM needs_components PREPEND tenon- OUTPUT_VARIABLE requires)
  list(JOIN needs_modules ", " modules)
  list(JOIN needs_flags " " flags)
  if(type STREQUAL SHARED_LIBRARY)
    # Headers of a component use those that it needs, and so do programs.
    list(JOIN requires ", " PC_REQUIRES)
    set(PC_PRIVATE "Requires.private: ${modules}\nLibs.private: ${flags}")
  else()
    list(APPEND requires ${needs_modules})
    list(JOIN requires ", " PC_REQUIRES)
    string(APPEND PC_LIBS " ${flags}")
    string(STRIP "${PC_LIBS}" PC_LIBS)
    set(PC_PRIVATE "")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tenon.pc.in ${staging}/${PC_NAME}.pc @ONLY)
  install(FILES ${staging}/${PC_NAME}.pc DESTINATION ${pkgconfig_dir})
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tenonConfig.cmake.in
  ${staging}/tenonConfig.cmake INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${staging}/tenonConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
file(GLOB find_modules ${PROJECT_SOURCE_DIR}/cmake/Find*.cmake)
install(FILES ${staging}/tenonConfig.cmake ${staging}/tenonConfigVersion.cmake ${find_modules}
              ${PROJECT_SOURCE_DIR}/cmake/TenonPrograms.cmake
        DESTINATION ${package_dir})
