# One step of the package test, as `cmake -D STEP=... -P run.cmake`. The prefix is installed as work/first and
# then moved to work/moved, so anything that remembers the first place fails. Five projects use it: consumer,
# which names components, examples/first, the README's program, which links tenon::tenon, examples/own_op, an op and a
# kernel of somebody else's, examples/own_device, an NPU of somebody else's, and examples/compiled, a program's text as
# C++. A sixth, subdirectory, builds the sources. `shared` has two libraries of its own in Tenon's place.
set(prefix ${WORK}/moved)
set(consumer ${SOURCE}/tests/package/consumer)
set(first ${SOURCE}/examples/first)
set(own_op ${SOURCE}/examples/own_op)
set(own_device ${SOURCE}/examples/own_device)
set(compiled ${SOURCE}/examples/compiled)
set(digits ${SOURCE}/examples/data)

function(run)
  list(JOIN ARGV " " line)
  message("+ ${line}")
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${line}")
  endif()
endfunction()

# Configures a project in work/STEP/<its name> and builds it, without the optimiser: what it finds counts, not its speed.
function(build_project name folder)
  file(REMOVE_RECURSE ${WORK}/${STEP}/${name})
  run(${CMAKE_COMMAND} -S ${folder} -B ${WORK}/${STEP}/${name} -G ${GENERATOR}
      -D CMAKE_BUILD_TYPE=${BUILD_TYPE} -D CMAKE_CXX_COMPILER=${COMPILER}
      -D CMAKE_CXX_FLAGS_RELEASE=-O0 -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGN})
  run(${CMAKE_COMMAND} --build ${WORK}/${STEP}/${name} --target ${name})
endfunction()

# The README's program, from a folder that is not the project's: right with its data, and without it an
# error that names the file, with the exit status of its class.
function(run_first program)
  message("+ ${program} ${digits}")
  execute_process(COMMAND ${program} ${digits} WORKING_DIRECTORY ${WORK}
                  RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE errors)
  if(NOT status EQUAL 0 OR NOT text MATCHES "^354 of 360 handwritten")
    message(FATAL_ERROR "${program} (${status}): ${text}${errors}")
  endif()
  execute_process(COMMAND ${program} WORKING_DIRECTORY ${WORK}
                  RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE errors)
  if(NOT status EQUAL 3 OR NOT text STREQUAL "" OR
     NOT errors MATCHES "^NotFound: examples/data/digits_mlp.safetensors[^\n]*\n$")
    message(FATAL_ERROR "${program} without its data (${status}): ${text}${errors}")
  endif()
endfunction()

# The program that was generated from a text with its main(): right with its files, and the usage without.
function(run_digits_program program)
  run(${program} ${digits}/digits_test.safetensors ${WORK}/digits.safetensors ${digits}/digits_mlp.safetensors)
  execute_process(COMMAND ${program} RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 2 OR NOT errors MATCHES "^usage: [^\n]* INPUTS RESULTS \\[WEIGHTS\\]\n$")
    message(FATAL_ERROR "${program} without arguments (${status}): ${errors}")
  endif()
  execute_process(COMMAND ${program} ${digits}/digits_test.safetensors ${WORK}/digits.safetensors
                  RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 1 OR NOT errors MATCHES "no weight 'up.weight'")
    message(FATAL_ERROR "${program} without weights (${status}): ${errors}")
  endif()
endfunction()

# The compiler's arguments for the named modules of the moved prefix; those of `shared` lie in its own.
function(pkg_config_flags out)
  find_program(pkg_config pkg-config REQUIRED)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs ${ARGN}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# No installed text names the machine it was built on.
function(expect_relocatable)
  file(GLOB_RECURSE files ${prefix}/*.cmake ${prefix}/*.pc)
  foreach(file IN LISTS files)
    file(READ ${file} text)
    foreach(place ${WORK} ${SOURCE} ${BUILD})
      string(FIND "${text}" "${place}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${place}")
      endif()
    endforeach()
    # A library by its full path is right on one machine only.
    if(text MATCHES "INTERFACE_LINK_LIBRARIES \"[^\"]*(/[^;\">]*\\.(so|a))")
      message(FATAL_ERROR "${file} links ${CMAKE_MATCH_1} by its path")
    endif()
  endforeach()
endfunction()

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE ${WORK}/first ${prefix})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
  file(RENAME ${WORK}/first ${prefix})
  expect_relocatable()
elseif(STEP STREQUAL "find_package")
  build_project(consumer ${consumer} -D CMAKE_PREFIX_PATH=${prefix})
  run(${WORK}/${STEP}/consumer/consumer)
  build_project(first ${first} -D CMAKE_PREFIX_PATH=${prefix})
  run_first(${WORK}/${STEP}/first/first)
  build_project(own_op ${own_op} -D CMAKE_PREFIX_PATH=${prefix})
  run(${WORK}/${STEP}/own_op/own_op)
  build_project(own_device ${own_device} -D CMAKE_PREFIX_PATH=${prefix})
  run(${WORK}/${STEP}/own_device/own_device ${digits})
  build_project(compiled ${compiled} -D CMAKE_PREFIX_PATH=${prefix})
  run_first(${WORK}/${STEP}/compiled/compiled)
  run_digits_program(${WORK}/${STEP}/compiled/digits_program)
elseif(STEP STREQUAL "missing_component")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${consumer} -B ${WORK}/${STEP} -G ${GENERATOR}
            -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix}
            -D MORE_COMPONENTS=no_such_part
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE text)
  if(status EQUAL 0 OR NOT text MATCHES "no component no_such_part")
    message(FATAL_ERROR "a missing component went unnoticed (${status}): ${text}")
  endif()
elseif(STEP STREQUAL "add_subdirectory")
  set(BUILD_TYPE Debug)
  build_project(compiled ${SOURCE}/tests/package/subdirectory -D TENON_SOURCE=${SOURCE}
                -D TENON_WARNINGS_AS_ERRORS=${WERROR})
  file(REMOVE_RECURSE ${WORK}/${STEP}/first)
  run(${CMAKE_COMMAND} -S ${first} -B ${WORK}/${STEP}/first -G ${GENERATOR} -D TENON_SOURCE=${SOURCE})
elseif(STEP STREQUAL "pkg_config")
  file(MAKE_DIRECTORY ${WORK}/${STEP})
  set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})  # for shared libraries
  pkg_config_flags(flags tenon-core tenon-cpu)
  run(${COMPILER} -std=c++20 ${consumer}/main.cpp -o ${WORK}/${STEP}/consumer ${flags})
  run(${WORK}/${STEP}/consumer)
  pkg_config_flags(flags tenon)
  run(${COMPILER} -std=c++20 ${first}/main.cpp -o ${WORK}/${STEP}/first ${flags})
  run_first(${WORK}/${STEP}/first)
  # With every object of the libraries, not only those that the programs above need.
  list(REMOVE_DUPLICATES flags)
  run(${COMPILER} -std=c++20 ${consumer}/main.cpp -o ${WORK}/${STEP}/whole
      -Wl,--whole-archive ${flags} -Wl,--no-whole-archive)
elseif(STEP STREQUAL "shared")
  # Programs, installed and of somebody else, find the libraries, and libraries find one another, wherever the prefix lies.
  set(sources ${SOURCE}/tests/package/shared)
  set(prefix ${WORK}/${STEP}/moved)
  build_project(shared ${sources} -D TENON_SOURCE=${SOURCE})
  file(REMOVE_RECURSE ${WORK}/${STEP}/placed ${prefix})
  run(${CMAKE_COMMAND} --install ${WORK}/${STEP}/shared --prefix ${WORK}/${STEP}/placed)
  file(RENAME ${WORK}/${STEP}/placed ${prefix})
  run(${prefix}/bin/shared)
  build_project(shared ${sources} -D INSTALLED=ON -D CMAKE_PREFIX_PATH=${prefix})
  run(${WORK}/${STEP}/shared/shared)
  # A program of a component may call those that it needs.
  pkg_config_flags(flags tenon-upper)
  run(${COMPILER} -DWITH_CORE ${sources}/main.cpp -o ${WORK}/${STEP}/by_hand ${flags})
  set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
  run(${WORK}/${STEP}/by_hand)
elseif(STEP STREQUAL "wheel")
  # A wheel on the installed package, in a virtual environment that has nothing but it and what it needs.
  file(REMOVE_RECURSE ${WORK}/wheel)
  set(ENV{CMAKE_PREFIX_PATH} ${prefix})
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} ${LAUNCHER})
  run(${PYTHON} -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation
      --wheel-dir ${WORK}/wheel -C build-dir=${WORK}/wheel/build
      -C cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0 -C cmake.define.TENON_UNITY=ON ${SOURCE})  # what it holds counts
  file(GLOB wheel ${WORK}/wheel/tenon-*.whl)
  run(${PYTHON} -m venv ${WORK}/wheel/venv)
  set(python ${WORK}/wheel/venv/bin/python)
  execute_process(COMMAND ${python} -m pip install --quiet --disable-pip-version-check "${wheel}[bf16]" RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message("SKIPPED: pip has no numpy for a clean environment")
    return()
  endif()
  set(ENV{PYTHONDONTWRITEBYTECODE} 1)
  run(${python} ${SOURCE}/python/tests/package/test_arrays.py)
  run(${python} ${SOURCE}/python/tests/package/test_programs.py)
else()
  message(FATAL_ERROR "no step ${STEP}")
endif()
