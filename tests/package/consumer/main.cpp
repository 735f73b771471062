// What a user's first program needs of an installed Tenon: its headers, its core and its CPU backend.
#include <cstdio>
#include <string>

#include <tenon/dtype.hpp>
#include <tenon/error.hpp>

int main() {
  if (tenon::name(tenon::f32) != "f32" || tenon::to_float(tenon::to_half(0.5f)) != 0.5f) return 1;
  try {
    throw tenon::Error(tenon::Errc::bad_argument, "consumer", "thrown across the library's border");
  } catch (const tenon::Error& error) {
    std::puts(error.what());
    return std::string(error.what()).find("consumer") == std::string::npos;
  }
}
