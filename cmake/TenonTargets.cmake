# Functions that every target of the project is declared with.
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Language level, warnings and sanitizers, for our own code only.
function(tenon_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow)
  if(TENON_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TENON_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${TENON_SANITIZE})
  endif()
endfunction()

# tenon_library(core SOURCES ...): library tenon_core with the alias tenon::core.
function(tenon_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  add_library(tenon_${name} ${ARG_SOURCES})
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(tenon_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  tenon_compile_options(tenon_${name})
  target_compile_options(tenon_${name} PRIVATE -Wconversion -Wsign-conversion)
  set_property(GLOBAL APPEND PROPERTY TENON_LIBRARIES tenon_${name})
endfunction()

# tenon_test(ops SOURCES ... LIBRARIES ...): Catch2 program test_ops, run by CTest under the label ops.
function(tenon_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${ARG_LIBRARIES} tenon_test_main)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  tenon_compile_options(test_${name})
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${name} SKIP_RETURN_CODE 77)
endfunction()
