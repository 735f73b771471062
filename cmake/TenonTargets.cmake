# Functions that every target of the project is declared with.
include(GNUInstallDirs)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A package found in one folder links into targets of every other, and of a project around this one.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

# Flags of the sanitizer and coverage builds, for compiling and for linking. The sanitizers do not see an index behind
# the end of a vector but inside of its memory: the library's assertions do. Checks of every pointer cost a fifth of the
# time to compile; what a wrong one reaches is the address sanitizer's to see.
set(tenon_instrument_flags "")
if(TENON_SANITIZE)
  list(APPEND tenon_instrument_flags -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer
       -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS)
  if(TENON_SANITIZE MATCHES "undefined")
    list(APPEND tenon_instrument_flags -fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
endif()
if(TENON_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TENON_FUZZ needs clang")
  endif()
  list(APPEND tenon_instrument_flags -fsanitize=fuzzer-no-link,address,undefined
       -fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()
if(TENON_COVERAGE)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND tenon_instrument_flags -fprofile-instr-generate -fcoverage-mapping)
  else()
    list(APPEND tenon_instrument_flags --coverage)
  endif()
endif()

# Language level, warnings and instrumentation, for our own code only.
function(tenon_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
                                           ${tenon_instrument_flags})
  target_link_options(${target} PRIVATE ${tenon_instrument_flags})
  if(TENON_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TENON_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Of sources in groups nearly everything is in use until the end, so GCC looks for garbage in vain: from 400 MB on, not
    # 128, saves 1 to 9 % of its time for 8 to 30 % more memory.
    target_compile_options(${target} PRIVATE --param=ggc-min-heapsize=400000)
  endif()
endfunction()

# With TENON_UNITY, compiles the sources of each folder a dozen at a time: headers take most of their time. Sources that have
# flags of their own stay apart.
function(tenon_group_sources target)
  get_target_property(sources ${target} SOURCES)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # To GCC a group is a header of which other sources may see a part.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE folder)
    cmake_path(RELATIVE_PATH folder)
    cmake_path(GET folder PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(LENGTH in_${folder} count)
    list(APPEND in_${folder} ${source})
    math(EXPR group "${count} / 12")
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# Where the loader finds our shared libraries from an installed file in `folder`, wherever the prefix lies.
# A packager's CMAKE_INSTALL_RPATH comes first.
function(tenon_find_libraries_from target folder)
  if(NOT BUILD_SHARED_LIBS OR CMAKE_INSTALL_RPATH)
    return()
  endif()
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${folder} OUTPUT_VARIABLE way)
  set_property(TARGET ${target} PROPERTY INSTALL_RPATH "$ORIGIN/${way}")
endfunction()

# tenon_installed_program(tenon): installs a program of this name.
function(tenon_installed_program target)
  tenon_find_libraries_from(${target} ${CMAKE_INSTALL_FULL_BINDIR})
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# tenon_library(core SOURCES ...): library tenon_core with the alias tenon::core, installed as the package's component core.
function(tenon_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  add_library(tenon_${name} ${ARG_SOURCES})
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES
    EXPORT_NAME ${name} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  tenon_find_libraries_from(tenon_${name} ${CMAKE_INSTALL_FULL_LIBDIR})
  target_include_directories(tenon_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  tenon_compile_options(tenon_${name})
  target_compile_options(tenon_${name} PRIVATE -Wconversion -Wsign-conversion)
  if(TARGET tenon_library_headers)
    target_precompile_headers(tenon_${name} REUSE_FROM tenon_library_headers)
  endif()
  if(TENON_UNITY)
    tenon_group_sources(tenon_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY TENON_LIBRARIES tenon_${name})
endfunction()

# tenon_interface(tenon LIBRARIES ...): a name for several libraries, tenon::tenon, installed as the
# package's component tenon.
function(tenon_interface name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  add_library(tenon_${name} INTERFACE)
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(tenon_${name} INTERFACE ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY TENON_LIBRARIES tenon_${name})
endfunction()

# tenon_backend_plugin(cpu): the backend of tenon_cpu as tenon_cpu_plugin, for load_plugin(). It brings
# its own copy of what it links, unless the libraries are shared ones.
function(tenon_backend_plugin name)
  configure_file(${PROJECT_SOURCE_DIR}/backends/plugin.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/plugin.cpp @ONLY)
  add_library(tenon_${name}_plugin MODULE ${CMAKE_CURRENT_BINARY_DIR}/plugin.cpp)
  target_link_libraries(tenon_${name}_plugin PRIVATE tenon_${name})
  tenon_compile_options(tenon_${name}_plugin)
endfunction()

# Options of programs whose own code takes longer to optimise than to run; `level` is that of Release, no sanitizer's build optimises
# them. Not -O0 in Release: the linker may take a program's copy of an inline function for the library, and whole tests take twice
# the time then.
function(tenon_quick_options target level)
  tenon_compile_options(${target})
  if(TENON_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE ${level})
  endif()
endfunction()

# Options of tests and what they share. What they test is optimised as users get it; templates of the public headers are in
# package.find_package's programs. -Og takes a quarter less of the compiler's time than -O1 and tests as long, but GCC 12 is wrong of
# what is uninitialised.
function(tenon_test_options target)
  tenon_quick_options(${target} -Og)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# tenon_program_options(<target>): options of the examples and benchmarks. With TENON_UNITY they share what most of them
# include, precompiled, which is half the time of compiling them.
function(tenon_program_options target)
  tenon_quick_options(${target} -O1)
  if(NOT TENON_UNITY OR TENON_COVERAGE)
    return()
  endif()
  if(NOT TARGET tenon_program_headers)
    file(CONFIGURE OUTPUT program_headers.cpp CONTENT "int main() {}\n")
    add_executable(tenon_program_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/program_headers.cpp)
    target_link_libraries(tenon_program_headers PRIVATE tenon::models)
    # Not <tenon/tenon.hpp>, which registers backends.
    target_precompile_headers(tenon_program_headers PRIVATE
      <fmt/format.h> <tenon/exe.hpp> <tenon/io/load.hpp> <tenon/models/language_model.hpp> <tenon/nn.hpp> <tenon/ops.hpp>
      <tenon/train.hpp>)
    tenon_quick_options(tenon_program_headers -O1)
  endif()
  target_precompile_headers(${target} REUSE_FROM tenon_program_headers)
endfunction()

# tenon_group_program(<target>): with TENON_UNITY, compiles the sources of a program a dozen at a time.
function(tenon_group_program target)
  if(NOT TENON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  target_compile_options(${target} PRIVATE -Wno-shadow)  # of another file's functions
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # the last two: GCC 12 is wrong of std::string's operator+
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()

# tenon_test_code(<target> [WITHOUT_CORE]): a program of tests, or a library that only such programs link, gets the tests'
# options and precompiled headers; with TENON_UNITY its sources are compiled a dozen at a time. WITHOUT_CORE: the headers without
# the core's.
function(tenon_test_code target)
  cmake_parse_arguments(ARG "WITHOUT_CORE" "" "" ${ARGN})
  tenon_test_options(${target})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "EXECUTABLE")  # part of a program, as the precompiled headers are
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIE)
  endif()
  if(ARG_WITHOUT_CORE)
    target_precompile_headers(${target} REUSE_FROM tenon_plain_test_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM tenon_test_headers)
  endif()
  # What a page of the documentation shows has the page's names, which may be another's.
  get_target_property(pages ${target} SOURCES)
  list(FILTER pages INCLUDE REGEX "page_test")
  set_source_files_properties(${pages} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  tenon_group_program(${target})
endfunction()

if(TENON_TESTS)
  add_custom_target(tenon_thread_tests COMMENT "The tests that run threads")
endif()

# tenon_test(ops SOURCES ... LIBRARIES ... [NEEDS tag ...] [ONLY_NEEDS] [THREADS] [WITHOUT_CORE] [COST seconds]):
# Catch2 program test_ops, run by CTest under the label ops. THREADS adds the label threads: the thread sanitizer's stage
# builds and runs only these. COST: of the tests that take long, so that CTest begins with the longest before it has measured
# them.
#
# NEEDS oracle: the test cases tagged [oracle] need what a machine may lack, and say "SKIPPED: ..." or exit with 77 where
# it does. They are a test of their own, ops_oracle, so that CTest lists them as skipped; ops itself is the other cases, and
# fails if one of them says so. ONLY_NEEDS: there are no other cases. WITHOUT tag: cases that another test runs as well.
# WITHOUT_CORE: no precompiled headers of the core's.
function(tenon_test name)
  cmake_parse_arguments(ARG "THREADS;ONLY_NEEDS;WITHOUT_CORE" "COST" "SOURCES;LIBRARIES;NEEDS;WITHOUT" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/share_small_work.cpp)
  if(TENON_SANITIZE MATCHES "thread")
    target_sources(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/thread_sanitizer.cpp)
  endif()
  target_link_libraries(test_${name} PRIVATE ${ARG_LIBRARIES} Catch2::Catch2WithMain)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(ARG_WITHOUT_CORE)
    tenon_test_code(test_${name} WITHOUT_CORE)
  else()
    tenon_test_code(test_${name})
  endif()
  set(labels ${name})
  if(ARG_THREADS)
    list(APPEND labels threads)
    add_dependencies(tenon_thread_tests test_${name})
  endif()

  set(others ${ARG_NEEDS} ${ARG_WITHOUT})
  list(TRANSFORM others REPLACE "(.+)" "~[\\1]")
  if(TENON_SANITIZE)  # how good numbers are over many samples, how time and memory grow, who is chosen: others run the same
    list(APPEND others "~[accuracy]" "~[growth]" "~[choices]")
  endif()
  if(TENON_SANITIZE MATCHES "thread")  # what takes long, and runs no threads, or only those that other cases run
    list(APPEND others "~[one_thread]" "~[every_type]" "~[every_path]")
  endif()
  if(others)  # a pattern that only leaves out would let Catch2 run the hidden cases
    list(APPEND others "~[.]")
  endif()
  list(JOIN others "" others)
  if(NOT ARG_ONLY_NEEDS)
    add_test(NAME ${name} COMMAND test_${name} ${others} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" FAIL_REGULAR_EXPRESSION "SKIPPED: ")
    if(ARG_COST)
      set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
    endif()
  endif()
  foreach(need IN LISTS ARG_NEEDS)
    add_test(NAME ${name}_${need} COMMAND test_${name} "[${need}]" --warn NoTests
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    # Skipped only if nothing failed: the expression spans Catch2's last lines.
    set_tests_properties(${name}_${need} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 77
      SKIP_REGULAR_EXPRESSION "SKIPPED: .*(All tests passed|assertions: - none -)")
  endforeach()
endfunction()

# tenon_test_levels(ops avx2 ... [TESTS "ops:*"]): the program test_ops again, or those of its cases, held to these
# instruction sets; skipped where the machine lacks one.
function(tenon_test_levels name)
  cmake_parse_arguments(ARG "" "TESTS" "" ${ARGN})
  foreach(level IN LISTS ARG_UNPARSED_ARGUMENTS)
    add_test(NAME ${name}_${level}
             COMMAND sh ${PROJECT_SOURCE_DIR}/tests/support/at_level.sh ${level} $<TARGET_FILE:test_${name}> ${ARG_TESTS}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_${level} PROPERTIES LABELS "${name};release_only" SKIP_RETURN_CODE 77
                         FAIL_REGULAR_EXPRESSION "SKIPPED: ")
  endforeach()
endfunction()
