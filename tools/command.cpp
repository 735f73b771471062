#include "command.hpp"

#include "tool.hpp"

#include <CLI/CLI.hpp>

namespace tenon::tool {
namespace {

template <typename T>
Option add(CLI::App& app, const std::string& names, T& value, const std::string& help) {
  return Option(*app.add_option(names, value, help)->capture_default_str());
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::not_empty() {
  option_->check([](const std::string& text) { return text.empty() ? "the value is empty" : ""; });
  return *this;
}

Option& Option::not_negative() {
  option_->check([](const std::string& text) {
    if (text.starts_with('-')) return text + " is negative";
    const bool is_nan = text.size() > 1 && (text[0] == 'n' || text[0] == 'N');
    return is_nan ? text + " is no number" : std::string();
  });
  return *this;
}

Option& Option::range(std::int64_t min, std::int64_t max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::one_of(std::vector<std::string> choices) {
  option_->check(CLI::IsMember(std::move(choices)));
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

bool Option::is_given() const { return option_->count() > 0; }

std::string Option::name() const { return option_->get_name(); }

Command::Command(CLI::App& app, Tool& tool, const std::string& name, const std::string& description)
    : app_(app.add_subcommand(name, description)), tool_(&tool) {}

Option Command::flag(const std::string& names, bool& value, const std::string& help) {
  return Option(*app_->add_flag(names, value, help));
}

Option Command::option(const std::string& names, int& value, const std::string& help) {
  return add(*app_, names, value, help);
}

Option Command::option(const std::string& names, std::int64_t& value, const std::string& help) {
  return add(*app_, names, value, help);
}

Option Command::option(const std::string& names, std::uint64_t& value, const std::string& help) {
  return add(*app_, names, value, help);
}

Option Command::option(const std::string& names, double& value, const std::string& help) {
  return add(*app_, names, value, help);
}

Option Command::option(const std::string& names, std::string& value, const std::string& help) {
  CLI::Option& option = *app_->add_option(names, value, help);
  if (!value.empty()) option.capture_default_str();
  return Option(option);
}

Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& help) {
  return Option(*app_->add_option(names, value, help));
}

Option Command::option(const std::string& names, std::optional<std::int64_t>& value,
                       const std::string& help) {
  return Option(*app_->add_option(names, value, help));
}

Option Command::option(const std::string& names, std::optional<double>& value,
                       const std::string& help) {
  return Option(*app_->add_option(names, value, help));
}

void Command::either(Option one, Option other) {
  one.excludes(other);
  either_.emplace_back(one, other);
}

void Command::runs(std::function<void()> work) {
  app_->callback([tool = tool_, either = either_, work = std::move(work)] {
    for (const auto& [one, other] : either) {
      if (!one.is_given() && !other.is_given()) {
        throw CLI::RequiredError(one.name() + " or " + other.name());
      }
    }
    tool->run = work;
  });
}

}  // namespace tenon::tool
