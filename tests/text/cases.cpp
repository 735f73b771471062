#include "text/cases.hpp"

#include <tenon/text/stream_decoder.hpp>

#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tenon::testing {
namespace {

using nlohmann::json;

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + file.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// Undoes \xHH, the only escape.
std::string unescape(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out.push_back(line[i]);
      continue;
    }
    unsigned byte = 0;
    std::from_chars(line.data() + i + 2, line.data() + i + 4, byte, 16);
    out.push_back(static_cast<char>(byte));
    i += 3;
  }
  return out;
}

std::vector<std::string> strings_of(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  std::vector<std::string> strings;
  for (const std::string_view line : lines_of(text)) strings.push_back(unescape(line));
  return strings;
}

std::vector<std::int32_t> ids_of(std::string_view line) {
  std::vector<std::int32_t> ids;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    std::int32_t id = 0;
    at = std::from_chars(at, end, id).ptr;
    ids.push_back(id);
    if (at != end) ++at;
  }
  return ids;
}

/// Of hexadecimal digits.
std::string bytes_of(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

text::TokenizerModel model_of(const std::string& name) {
  if (name == "bpe") return text::TokenizerModel::bpe;
  if (name == "spm") return text::TokenizerModel::spm;
  if (name == "wordpiece") return text::TokenizerModel::wordpiece;
  if (name == "unigram") return text::TokenizerModel::unigram;
  if (name == "rwkv") return text::TokenizerModel::rwkv;
  if (name == "hybriddna") return text::TokenizerModel::hybriddna;
  if (name == "plamo2") return text::TokenizerModel::plamo2;
  throw std::runtime_error("no model " + name);
}

const json& case_of(const json& cases, std::string_view name) {
  for (const json& entry : cases) {
    if (entry.at("name") == name) return entry;
  }
  throw std::runtime_error(fmt::format("no case {}", name));
}

std::string streamed(const text::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  text::StreamDecoder decoder(tokenizer);
  std::string out;
  for (const std::int32_t id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

}  // namespace

std::vector<std::string> text_case_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const json& entry : json::parse(read_file(folder / "cases.json"))) {
    names.push_back(entry.at("name"));
  }
  return names;
}

text::Vocabulary read_vocabulary(const std::filesystem::path& file,
                                 const std::optional<std::string>& pre) {
  const auto document = std::make_shared<const json>(json::parse(read_file(file)));
  text::Vocabulary v;
  v.storage = document;
  v.model = model_of(document->at("model"));
  v.pretokenizer = pre.value_or(document->value("pre", "default"));
  for (const json& token : document->at("tokens")) {
    v.tokens.push_back(token.get_ref<const std::string&>());
  }
  for (const json& type : document->at("types")) {
    v.types.push_back(static_cast<text::TokenType>(type.get<int>()));
  }
  if (document->contains("scores")) v.scores = document->at("scores").get<std::vector<float>>();
  if (document->contains("merges")) {
    for (const json& merge : document->at("merges")) {
      v.merges.push_back(text::parse_merge(merge.get_ref<const std::string&>()));
    }
  }
  const auto id = [&](const char* key) -> std::optional<std::uint32_t> {
    if (!document->contains(key)) return std::nullopt;
    return document->at(key).get<std::uint32_t>();
  };
  const auto flag = [&](const char* key) -> std::optional<bool> {
    if (!document->contains(key)) return std::nullopt;
    return document->at(key).get<bool>();
  };
  v.bos = id("bos");
  v.eos = id("eos");
  v.unk = id("unk");
  v.pad = id("pad");
  v.add_bos = flag("add_bos");
  v.add_eos = flag("add_eos");
  v.lowercase = flag("lowercase");
  v.add_space_prefix = flag("add_space_prefix");
  v.remove_extra_spaces = flag("remove_extra_spaces");
  if (document->contains("charsmap")) {
    const auto bytes =
        std::make_shared<const std::string>(bytes_of(document->at("charsmap").get<std::string>()));
    v.precompiled_charsmap = *bytes;
    v.storage = std::make_shared<std::pair<decltype(document), decltype(bytes)>>(document, bytes);
  }
  return v;
}

TextCases read_text_cases(const std::filesystem::path& folder, std::string_view name) {
  const json all = json::parse(read_file(folder / "cases.json"));
  const json& entry = case_of(all, name);
  const std::filesystem::path file = folder / entry.at("vocabulary").get<std::string>();
  std::optional<std::string> pre;
  if (entry.contains("pre")) pre = entry.at("pre").get<std::string>();
  TextCases cases{.name = std::string(name),
                  .tokenizer = file.string().ends_with("tokenizer.json")
                                   ? text::Tokenizer::from_json(file)
                                   : text::Tokenizer(read_vocabulary(file, pre)),
                  .options = {},
                  .strings = strings_of(folder / "strings.txt"),
                  .ids = {},
                  .decoded = {}};
  cases.options.add_special = entry.at("add_special");
  cases.options.parse_special = entry.at("parse_special");
  // Hugging Face takes no bytes, so the oracle saw broken UTF-8 with replacement characters.
  cases.options.invalid_utf8 = text::InvalidUtf8::replace;
  const std::string ids = read_file(folder / fmt::format("{}.ids", name));
  for (const std::string_view line : lines_of(ids)) cases.ids.push_back(ids_of(line));
  if (entry.at("decodes")) cases.decoded = strings_of(folder / fmt::format("{}.text", name));
  return cases;
}

TextDifferences compare(const TextCases& cases, std::size_t limit) {
  TextDifferences found;
  const auto differ = [&](std::size_t i, std::string_view what, const auto& expected,
                          const auto& actual) {
    if (++found.count > limit) return;
    found.described.push_back(fmt::format("{}: {} of {:?}\n  expected {}\n  actual   {}",
                                          cases.name, what, std::string_view(cases.strings[i]),
                                          expected, actual));
  };
  for (std::size_t i = 0; i < cases.strings.size(); ++i) {
    const auto ids = cases.tokenizer.encode(cases.strings[i], cases.options);
    if (ids != cases.ids[i]) differ(i, "ids", cases.ids[i], ids);
    if (cases.decoded.empty()) continue;
    const std::string text = streamed(cases.tokenizer, cases.ids[i]);
    if (text != cases.decoded[i]) differ(i, "text", cases.decoded[i], text);
  }
  return found;
}

}  // namespace tenon::testing
