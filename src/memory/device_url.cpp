#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr std::size_t max_url_bytes = 4096;

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_scheme_char(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}
constexpr bool is_printable(char c) { return c > ' ' && c < '\x7F'; }

[[noreturn]] void refuse(std::size_t offset, std::string message) {
  throw Error(Errc::syntax, fmt::format("device URL:{}", offset), std::move(message));
}

}  // namespace

DeviceUrl DeviceUrl::parse(std::string_view url) {
  if (url.size() > max_url_bytes)
    refuse(max_url_bytes, fmt::format("a URL of {} bytes", url.size()));
  for (std::size_t i = 0; i < url.size(); ++i) {
    if (!is_printable(url[i])) {
      refuse(i, fmt::format("byte {:#04x} is not printable ASCII",
                            static_cast<unsigned char>(url[i])));
    }
  }
  DeviceUrl result;
  result.text = url;

  const std::size_t colon = url.find(':');
  if (colon == std::string_view::npos) refuse(url.size(), fmt::format("no scheme in '{}'", url));
  const std::string_view scheme = url.substr(0, colon);
  if (scheme.empty() || !is_letter(scheme[0]) || !std::ranges::all_of(scheme, is_scheme_char)) {
    refuse(0, fmt::format("'{}' is no scheme", scheme));
  }
  result.scheme = scheme;

  std::size_t at = colon + 1;
  if (url.substr(at).starts_with("//")) at += 2;
  const std::size_t question = std::min(url.find('?', at), url.size());
  result.address = url.substr(at, question - at);

  for (at = question; at < url.size();) {
    ++at;  // the '?' or '&' before this parameter
    const std::size_t end = std::min(url.find('&', at), url.size());
    const std::string_view param = url.substr(at, end - at);
    const std::size_t equals = param.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      refuse(at, fmt::format("'{}' is no key=value", param));
    }
    const std::string_view key = param.substr(0, equals);
    if (std::ranges::any_of(result.params, [&](const auto& other) { return other.first == key; })) {
      throw Error(Errc::duplicate_name, fmt::format("device URL:{}", at),
                  fmt::format("parameter '{}' is given twice", key));
    }
    result.params.emplace_back(key, param.substr(equals + 1));
    at = end;
  }
  return result;
}

const std::string* DeviceUrl::find(std::string_view key) const noexcept {
  const auto param = std::ranges::find(params, key, &decltype(params)::value_type::first);
  return param != params.end() ? &param->second : nullptr;
}

void DeviceUrl::check_keys(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : params) {
    if (std::ranges::find(known, key) != known.end()) continue;
    throw Error(
        Errc::bad_key, text,
        fmt::format("the device knows no parameter '{}'; it knows: {}", key,
                    known.size() == 0 ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  }
}

}  // namespace tenon
