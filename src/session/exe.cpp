// What an Exe does that does not depend on its model.
#include <tenon/exe.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <span>

#include <fmt/format.h>

namespace tenon::detail {
namespace {

constexpr std::size_t max_listed = 5;

/// "'up.bias', 'down.bias' and 7 more".
std::string list(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), max_listed))) {
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", name);
  }
  if (names.size() > max_listed) text += fmt::format(" and {} more", names.size() - max_listed);
  return text;
}

/// The names that only the first list has, in its order.
std::vector<std::string> only_in(std::span<const std::string> names,
                                 std::span<const std::string> others) {
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (std::ranges::find(others, name) == others.end()) result.push_back(name);
  }
  return result;
}

}  // namespace

ArgumentList::ArgumentList(std::vector<std::string> paths, std::vector<Shape> declared,
                           std::vector<std::string> names, std::size_t argument_count)
    : paths_(std::move(paths)), declared_(std::move(declared)), names_(std::move(names)) {
  for (auto name = names_.begin(); name != names_.end(); ++name) {
    if (!name->empty() && std::find(names_.begin(), name, *name) != name) {
      throw Error(Errc::bad_argument, "compile",
                  fmt::format("CompileOptions::arguments has '{}' twice", *name));
    }
  }
  if (names_.size() > argument_count) {
    throw Error(
        Errc::bad_argument, "compile",
        fmt::format("CompileOptions::arguments has {} names and forward takes {} argument{}: "
                    "none is left for {}",
                    names_.size(), argument_count, argument_count == 1 ? "" : "s",
                    list(std::span(names_).subspan(argument_count))));
  }
}

bool ArgumentList::is_static() const noexcept {
  return std::ranges::all_of(declared_, [](const Shape& shape) { return shape.is_static(); });
}

std::string ArgumentList::name(std::size_t i) const { return name_of(paths_[i]); }

/// A path begins with the number of its argument.
std::string ArgumentList::name_of(const std::string& path) const {
  std::size_t number = 0;
  const char* const path_end = path.data() + path.size();
  const auto [rest, error] = std::from_chars(path.data(), path_end, number);
  if (error != std::errc() || number >= names_.size() || names_[number].empty()) return "";
  return names_[number] + std::string(rest, path_end);
}

/// "'cache.keys'", or "'keys' of argument 2" where that has no name.
std::string ArgumentList::described(const std::string& path) const {
  if (const std::string called = name_of(path); !called.empty()) return fmt::format("'{}'", called);
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) return fmt::format("argument {}", path);
  return fmt::format("'{}' of argument {}", path.substr(dot + 1), path.substr(0, dot));
}

void ArgumentList::refuse_value(const OtherValue& value) const {
  throw Error(
      Errc::bad_input, "forward",
      fmt::format("{} {}: forward was compiled with {}. What differs between calls is a tensor",
                  described(value.path),
                  value.given.empty() ? "has another value" : "is " + value.given,
                  value.wanted.empty() ? "the one of then" : value.wanted));
}

std::vector<Shape> ArgumentList::with_tags(std::span<const Shape> inputs) const {
  std::vector<Shape> result(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i].rank() != declared_[i].rank()) continue;
    for (int axis = 0; axis < result[i].rank(); ++axis) {
      result[i] = result[i].with_tag(axis, declared_[i].tag(axis));
    }
  }
  return result;
}

std::vector<Shape> ArgumentList::shapes_of(std::span<const std::string> paths,
                                           std::span<Buffer* const> leaves) const {
  check_form(paths);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i]->has_data()) {
      throw Error(Errc::bad_input, "forward", fmt::format("{} has no data", described(i)));
    }
    check_tags(i, leaves[i]->shape());
    shapes.push_back(leaves[i]->shape().without_tags());
  }
  return shapes;
}

void ArgumentList::check_fit(std::span<const Shape> inputs) const {
  std::map<std::int64_t, std::int64_t> sizes;  // of symbols
  std::string known;                           // the size of a symbol that an argument contradicts
  const auto fits = [&](const Shape& declared, const Shape& given) {
    if (given.rank() != declared.rank() || given.dtype() != declared.dtype()) return false;
    for (int axis = 0; axis < given.rank(); ++axis) {
      std::int64_t want = declared[axis];
      if (is_symbol(want)) want = sizes.try_emplace(want, given[axis]).first->second;
      if (want != unknown_dim && want != given[axis]) {
        if (is_symbol(declared[axis])) {
          known = fmt::format(" with {} = {}", symbol_name(declared[axis]).text(), want);
        }
        return false;
      }
    }
    return true;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (fits(declared_[i], inputs[i])) continue;
    throw Error(Errc::bad_input, "forward",
                fmt::format("{} is {}, compiled for {}{}, and closed_shapes is set", described(i),
                            to_string(inputs[i]), to_string(declared_[i]), known));
  }
}

void ArgumentList::check_form(std::span<const std::string> paths) const {
  if (std::ranges::equal(paths, paths_)) return;
  const std::vector<std::string> extra = only_in(paths, paths_);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (std::ranges::find(paths, paths_[i]) != paths.end()) continue;
    throw Error(Errc::bad_input, "forward",
                fmt::format("compiled with {}, called without it", described(i)));
  }
  throw Error(Errc::bad_input, "forward",
              fmt::format("called with {} (argument and field), compiled without", list(extra)));
}

void ArgumentList::check_tags(std::size_t i, const Shape& given) const {
  const Shape& declared = declared_[i];
  if (given.rank() != declared.rank()) return;  // an error of forward's, if it is one
  for (int axis = 0; axis < given.rank(); ++axis) {
    const Name mine = declared.tag(axis), theirs = given.tag(axis);
    if (mine.empty() || theirs.empty() || mine == theirs) continue;
    throw Error(Errc::bad_input, "forward",
                fmt::format("{} is {}, compiled for {}", described(i), to_string(given),
                            to_string(declared)));
  }
}

void rethrow_with_fields(std::span<const std::string> empty_fields) {
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() != Errc::stale_handle || empty_fields.empty()) throw;
    throw Error(
        error.code(), error.where(),
        fmt::format("{}; empty fields of the model: {}", error.message(), list(empty_fields)));
  }
}

namespace {

/// Whether two buffers are one array, or hold the same.
bool same_array(const Buffer& a, const Buffer& b) {
  if (!(a.shape().without_tags() == b.shape().without_tags())) return false;
  if (a.chunk() == b.chunk() && a.offset_bytes() == b.offset_bytes()) return true;
  if (a.shape().elements() == 0) return true;  // of which there may be no address
  const HostBuffer left = a.to_host(), right = b.to_host();
  return std::memcmp(left.view().data, right.view().data,
                     static_cast<std::size_t>(a.shape().bytes())) == 0;
}

}  // namespace

std::map<std::string, Buffer> named_weights(std::span<const NamedField> fields,
                                            std::span<const std::string> paths,
                                            std::span<const Buffer* const> weights) {
  std::vector<std::string> wanted;
  for (const NamedField& field : fields) wanted.push_back(field.path);
  if (!std::ranges::equal(wanted, paths)) {
    const std::vector<std::string> missing = only_in(wanted, paths), extra = only_in(paths, wanted);
    throw Error(Errc::bad_argument, "Exe::bind",
                !missing.empty()
                    ? fmt::format("the weights lack {}, which the model has", list(missing))
                    : fmt::format("the weights have {}, which the model lacks", list(extra)));
  }
  std::map<std::string, Buffer> named;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].tensor.empty()) continue;
    if (!weights[i]->has_data()) {
      throw Error(Errc::bad_argument, "Exe::bind", fmt::format("no data for '{}'", fields[i].path));
    }
    const auto [found, is_first] = named.emplace(fields[i].tensor, *weights[i]);
    if (is_first || same_array(found->second, *weights[i])) continue;
    const auto first = std::ranges::find(fields, fields[i].tensor, &NamedField::tensor);
    throw Error(
        Errc::bad_argument, "Exe::bind",
        fmt::format("'{}' and '{}' are one weight of the model, '{}', but have other values",
                    first->path, fields[i].path, fields[i].tensor));
  }
  return named;
}

Buffer with_tags(Buffer buffer, const Shape& shape) {
  if (!shape.has_tags() || shape.rank() != buffer.shape().rank()) return buffer;
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::array<Name, max_rank> tags;  // needs no memory: results are at stake
  for (std::size_t axis = 0; axis < rank; ++axis) tags[axis] = shape.tag(static_cast<int>(axis));
  return buffer.with_shape(buffer.shape().with_tags(std::span(tags).first(rank)));
}

}  // namespace tenon::detail
