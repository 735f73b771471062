// The command line of one command. The parser's header takes longer to compile than everything else
// in this program together, so command.cpp and main.cpp alone include it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tenon::tool {

struct Tool;

/// An option or argument of a command; a handle, which lives as long as the parser.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option& required();
  Option& not_empty();
  Option& not_negative();
  Option& range(std::int64_t min, std::int64_t max);
  Option& one_of(std::vector<std::string> choices);
  Option& excludes(const Option& other);
  Option& needs(const Option& other);
  Option& one_value_each();  ///< of a list: the option is repeated for each value

  bool is_given() const;     ///< after parsing
  std::string name() const;  ///< as in messages: --file

 private:
  CLI::Option* option_;
};

class Command {
 public:
  Command(CLI::App& app, Tool& tool, const std::string& name, const std::string& description);

  Tool& tool() const noexcept { return *tool_; }

  /// `names` as in "-t,--threads", or "MODEL" for an argument. `value` must exist until the command
  /// has run; its current value is the default, which the help shows unless it is empty.
  Option flag(const std::string& names, bool& value, const std::string& help);
  Option option(const std::string& names, int& value, const std::string& help);
  Option option(const std::string& names, std::int64_t& value, const std::string& help);
  Option option(const std::string& names, std::uint64_t& value, const std::string& help);
  Option option(const std::string& names, double& value, const std::string& help);
  Option option(const std::string& names, std::string& value, const std::string& help);
  Option option(const std::string& names, std::vector<std::string>& value, const std::string& help);
  Option option(const std::string& names, std::optional<std::int64_t>& value,
                const std::string& help);
  Option option(const std::string& names, std::optional<double>& value, const std::string& help);

  /// Exactly one of the two must be given.
  void either(Option one, Option other);

  /// The action of this command. To be called last.
  void runs(std::function<void()> work);

 private:
  CLI::App* app_;
  Tool* tool_;
  std::vector<std::pair<Option, Option>> either_;
};

}  // namespace tenon::tool
