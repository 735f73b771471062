#include <tenon/version.hpp>

namespace tenon {

std::string_view version() noexcept { return TENON_VERSION; }

}  // namespace tenon
