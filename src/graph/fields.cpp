#include <tenon/fields.hpp>

namespace tenon::detail {

std::string field_name(std::string_view names, std::size_t index) {
  for (; index > 0; --index) names.remove_prefix(names.find(',') + 1);
  names = names.substr(0, names.find(','));
  while (!names.empty() && names.front() == ' ') names.remove_prefix(1);
  while (!names.empty() && names.back() == ' ') names.remove_suffix(1);
  return std::string(names);
}

std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::string join_path(const std::string& path, std::size_t index) {
  return join_path(path, std::to_string(index));
}

}  // namespace tenon::detail
