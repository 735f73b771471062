# cmake -DCOMPILER=... -DINCLUDES=... -DCASE=... -P check_refused_call.cmake
# The compiler refuses the call, or the model, with one error, which says what to write; or takes it, CASE "good".
execute_process(
  COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDES} -DCASE_${CASE}
          ${CMAKE_CURRENT_LIST_DIR}/refused_call.cpp
  RESULT_VARIABLE status ERROR_VARIABLE text)
if(CASE STREQUAL "good")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "refused:\n${text}")
  endif()
  return()
endif()
if(status EQUAL 0)
  message(FATAL_ERROR "the compiler takes it")
endif()
set(advice "for each of forward's arguments")
if(CASE STREQUAL "no_template")
  set(advice "template <class T = Tensor> struct Net")
elseif(CASE STREQUAL "other_container")
  set(advice "its tensors cannot be found")
endif()
string(REGEX MATCHALL "error: " errors "${text}")
list(LENGTH errors count)
string(REGEX MATCHALL "\n" lines "${text}")
list(LENGTH lines line_count)
if(NOT count EQUAL 1 OR line_count GREATER 25 OR NOT text MATCHES "${advice}")
  message(FATAL_ERROR "${count} errors in ${line_count} lines:\n${text}")
endif()
