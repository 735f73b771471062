#include "tool.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/printable.hpp>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tenon::tool {
namespace {

constexpr std::size_t long_text = 200;

Json number_or_text(const io::MetaValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using T = std::remove_cvref_t<decltype(held)>;
        if constexpr (std::is_same_v<T, io::MetaArray>) {
          return {{"array_of", std::string(io::name(held.element_type()))}, {"count", held.size()}};
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return held.size() <= long_text
                     ? std::string(held)
                     : fmt::format("{}... ({} bytes)", held.substr(0, long_text), held.size());
        } else if constexpr (std::is_same_v<T, float>) {
          return std::stod(
              fmt::format("{}", held));  // 1e-06, not the 9.999999974752427e-07 it is as a double
        } else {
          return held;
        }
      },
      value);
}

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// In ASCII, so that it contains no terminal commands.
std::string ascii_of(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json tensor_of(const io::TensorEntry& entry) {
  return {
      {"name", entry.name},
      {"dtype", std::string(name(entry.shape.dtype()))},
      {"shape", std::vector<std::int64_t>(entry.shape.dims().begin(), entry.shape.dims().end())},
      {"bytes", entry.size_bytes}};
}

struct TypeTotal {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// The one object of a `--json` run. A file may have a million keys and tensors: each is printed at
/// once, without lookups among the others.
void print_json(const io::File& file, const Json& head) {
  fmt::print("{{\n");
  for (const auto& [key, value] : head.items()) {
    fmt::print("  {}: {},\n", ascii_of(key), ascii_of(value));
  }
  fmt::print("  \"metadata\": {{");
  std::string_view before = "\n";
  for (const auto& entry : file.metadata().entries()) {
    fmt::print("{}    {}: {}", before, ascii_of(entry.key), ascii_of(number_or_text(entry.value)));
    before = ",\n";
  }
  fmt::print("\n  }},\n  \"tensors\": [");
  before = "\n";
  for (const io::TensorEntry& entry : file.tensors()) {
    fmt::print("{}    {}", before, ascii_of(tensor_of(entry)));
    before = ",\n";
  }
  fmt::print("\n  ]\n}}\n");
}

void run(const Tool& tool) {
  const io::File file = io::open(tool.model, {.access = io::Access::guarded});
  std::map<std::string, TypeTotal> types;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  for (const io::TensorEntry& entry : file.tensors()) {
    TypeTotal& total = types[std::string(name(entry.shape.dtype()))];
    ++total.tensors;
    total.bytes += entry.size_bytes;
    parameters += entry.shape.elements();
    bytes += entry.size_bytes;
  }
  std::string tokenizer = "none";
  try {
    const auto loaded = models::load_tokenizer(file);
    tokenizer = fmt::format("{} tokens", loaded.vocab_size());
    if (file.format() == io::Format::gguf) {
      tokenizer += ", chat format ";
      const auto format = models::load_chat_format(file, loaded);
      const auto family = format ? format->family() : std::nullopt;
      tokenizer += family   ? std::string(spelling(*family))
                   : format ? std::string("of its own")
                            : std::string("none");
    }
  } catch (const Error& error) {
    tokenizer = error.what();
  }
  file.check_pages();
  if (tool.json) {
    print_json(file, {{"path", file.path().string()},
                      {"format", std::string(io::name(file.format()))},
                      {"parameters", parameters},
                      {"tensor_bytes", bytes},
                      {"tokenizer", tokenizer}});
    return;
  }
  fmt::print("{}: {}, {} tensors, {:.1f} M parameters, {:.1f} MiB\n",
             printable(file.path().filename().string()), io::name(file.format()),
             file.tensors().size(), static_cast<double>(parameters) * 1e-6,
             static_cast<double>(bytes) / 1048576);
  for (const auto& [type, total] : types) {
    fmt::print("  {:<6} {:5} tensors {:9.1f} MiB\n", type, total.tensors,
               static_cast<double>(total.bytes) / 1048576);
  }
  fmt::print("tokenizer: {}\n", printable(tokenizer));
  for (const auto& entry : file.metadata().entries()) {
    fmt::print("  {} = {}\n", printable(entry.key),
               printable(text_of(number_or_text(entry.value))));
  }
}

}  // namespace

void add_info(CLI::App& app, Tool& tool) {
  Command command(app, tool, "info", "What a model file holds");
  add_model(command);
  add_json(command);
  command.runs([&tool] { run(tool); });
}

}  // namespace tenon::tool
