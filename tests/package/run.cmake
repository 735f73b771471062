# One step of the package test, as `cmake -D STEP=... -P run.cmake`. The prefix is installed as work/first and
# then moved to work/moved, so anything that remembers the first place fails.
set(prefix ${WORK}/moved)
set(consumer ${SOURCE}/tests/package/consumer)

function(run)
  list(JOIN ARGV " " line)
  message("+ ${line}")
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${line}")
  endif()
endfunction()

# Configures the consumer in work/STEP, builds it and runs it.
function(build_consumer)
  file(REMOVE_RECURSE ${WORK}/${STEP})
  run(${CMAKE_COMMAND} -S ${consumer} -B ${WORK}/${STEP} -G ${GENERATOR}
      -D CMAKE_BUILD_TYPE=${BUILD_TYPE} -D CMAKE_CXX_COMPILER=${COMPILER}
      -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGV})
  run(${CMAKE_COMMAND} --build ${WORK}/${STEP} --target consumer)
  run(${WORK}/${STEP}/consumer)
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
  build_consumer(-D CMAKE_PREFIX_PATH=${prefix})
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
  # With the flags of the surrounding build, ccache has every object already.
  build_consumer(-D TENON_SOURCE=${SOURCE} -D TENON_WARNINGS_AS_ERRORS=${WERROR})
elseif(STEP STREQUAL "pkg_config")
  find_program(pkg_config pkg-config REQUIRED)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs tenon-core tenon-cpu
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${pkg_config} --exists --print-errors tenon COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  file(MAKE_DIRECTORY ${WORK}/${STEP})
  run(${COMPILER} -std=c++20 ${consumer}/main.cpp -o ${WORK}/${STEP}/consumer ${flags})
  run(${WORK}/${STEP}/consumer)
else()
  message(FATAL_ERROR "no step ${STEP}")
endif()
