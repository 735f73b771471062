// A library of somebody else's that has all of Tenon in it.
#include <tenon/tenon.hpp>

#include <cstddef>

extern "C" std::size_t backend_count() { return tenon::default_backends().size(); }
