#include <tenon/error.hpp>
#include <tenon/interrupt.hpp>

#include <string>

namespace tenon {

void Interrupt::check(std::string_view where) const {
  if (cancel.stop_requested()) throw Error(Errc::cancelled, std::string(where), "cancelled");
  if (is_due()) throw Error(Errc::timeout, std::string(where), "the deadline has passed");
}

}  // namespace tenon
