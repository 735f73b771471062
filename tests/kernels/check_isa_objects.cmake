# Objects compiled for one instruction set must define no function that the linker merges with other
# objects' (weak functions): the copy it keeps could be the one that this CPU cannot run.
#
#   cmake -DNM=nm "-DOBJECTS=a.o;b.o" -P check_isa_objects.cmake
set(bad "")
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "_(portable|avx2|avx_vnni|avx512|avx512_vnni|amx)\\.cpp\\.o")
    continue()
  endif()
  math(EXPR checked "${checked} + 1")
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                  RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  string(REGEX MATCHALL "[0-9a-f]+ [Ww] [^\n]+" shared "${symbols}")
  foreach(symbol IN LISTS shared)
    string(APPEND bad "\n  ${object}: ${symbol}")
  endforeach()
endforeach()
if(checked LESS 5)
  message(FATAL_ERROR "only ${checked} objects of instruction sets found")
endif()
if(bad)
  message(FATAL_ERROR "functions that other objects could end up running:${bad}")
endif()
message(STATUS "${checked} objects checked")
