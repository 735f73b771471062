# What the installed package asks of its users' machines, derived from what the libraries link.

# One row per foreign target: target|CMake package|pkg-config module|linker flags of pkg-config.
# A header-only dependency that no public header shows needs no pkg-config entry.
set(tenon_known_dependencies
  "fmt::fmt|fmt|fmt|"
  "spdlog::spdlog|spdlog|spdlog|"
  "nlohmann_json::nlohmann_json|nlohmann_json||"
  "Eigen3::Eigen|Eigen3|eigen3|"
  "hwy::hwy|hwy|libhwy|"
  "CLI11::CLI11|CLI11||"
  "OpenBLAS::OpenBLAS|OpenBLAS|openblas|"
  "BLAS::BLAS|BLAS|blas|"
  "Threads::Threads|Threads||-pthread"
  "PkgConfig::xxhash|xxhash|libxxhash|"
  "PkgConfig::utf8proc|utf8proc|libutf8proc|"
  "xxHash::xxhash|xxhash|libxxhash|"
  "utf8proc::utf8proc|utf8proc|libutf8proc|"
)

# Sets <out>_components, <out>_packages, <out>_modules and <out>_flags: what tenon_<name> links, public
# and private alike, since a static library hands all of it on.
function(tenon_dependencies target out)
  set(components "")
  set(packages "")
  set(modules "")
  set(flags "")
  get_target_property(links ${target} LINK_LIBRARIES)
  get_target_property(interface ${target} INTERFACE_LINK_LIBRARIES)
  foreach(link IN LISTS links interface)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(NOT link OR link MATCHES "^\\$<BUILD_INTERFACE:|^::@" OR link MATCHES "-NOTFOUND$")
      continue()
    endif()
    if(link MATCHES "^tenon(::|_)(.+)$")
      list(APPEND components ${CMAKE_MATCH_2})
      continue()
    endif()
    if(link MATCHES "^(-l)?(dl|m|rt)$")
      list(APPEND flags -l${CMAKE_MATCH_2})
      continue()
    endif()
    set(row "${tenon_known_dependencies}")
    list(FILTER row INCLUDE REGEX "^${link}\\|")
    if(NOT row)
      message(FATAL_ERROR "${target} links ${link}: add it to cmake/TenonDependencies.cmake, "
                          "since the installed package must find it too")
    endif()
    string(REPLACE "|" ";" row "${row}")
    list(GET row 1 package)
    list(GET row 2 module)
    list(GET row 3 flag)
    list(APPEND packages ${package})
    list(APPEND modules ${module})
    list(APPEND flags ${flag})
  endforeach()
  foreach(kind components packages modules flags)
    list(REMOVE_DUPLICATES ${kind})
    set(${out}_${kind} "${${kind}}" PARENT_SCOPE)
  endforeach()
endfunction()
