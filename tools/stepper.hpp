#pragma once

#include "line_reader.hpp"
#include "tool.hpp"

#include <tenon/host_buffer.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::tool {

/// Shows the steps of a run as they are computed: all of them, those at breakpoints, or one after
/// the other by commands.
class Stepper {
 public:
  struct Options {
    bool every = false;                 ///< every step, in a line of its own
    bool asks = false;                  ///< stops, and reads commands from standard input
    std::vector<std::string> breaks{};  ///< lines of the text, or names of values

    bool shows() const noexcept { return every || asks || !breaks.empty(); }
  };

  /// `text` is what the program was read from, where it has lines. Errc::bad_argument for a
  /// breakpoint at which nothing is computed. `program` and `weights` must live as long.
  Stepper(const Program& program, const std::string& text,
          const std::map<std::string, Buffer>& weights, Options options, bool json);

  /// Before the session's first run.
  void watch(Session& session, const std::vector<Buffer>& inputs);
  /// After the run: what was shown, for --json.
  const Json& shown() const noexcept { return shown_; }
  /// Breakpoints that no step came by.
  std::vector<std::string> unreached() const;

  /// What a run throws when its user ends it.
  struct Quit {};

 private:
  /// What computes a value, and the function that it is of.
  struct Maker {
    const Function* function;
    const Instruction* instruction;
  };
  const Maker* maker(const StepEvent& event, const std::string& value) const;
  bool is_break(const std::set<std::string>& forms) const;
  void before(const StepEvent& event);
  void after(const StepEvent& event, std::size_t i);
  void show(const StepEvent& event, std::size_t i, const Maker* made);
  void ask();
  void print_value(const std::string& name) const;
  std::set<std::string> matching(const Maker* made, const std::string& value) const;

  const Program& program_;
  Program unrolled_;
  const std::map<std::string, Buffer>& weights_;
  Options options_;
  bool json_;
  std::vector<std::string> lines_;
  /// Of the unrolled program, by function and value; the function is "" outside of loops.
  std::map<std::pair<std::string, std::string>, Maker> made_by_;
  std::map<std::pair<int, int>, std::string> name_at_;  // of values, by their place in the text
  std::set<std::string> reached_;
  std::vector<HostBuffer> operands_;          // of the step that runs, if it will be shown
  std::map<std::string, HostBuffer> values_;  // where it asks: what has been computed
  std::unique_ptr<LineReader> reader_;
  bool stops_ = false;  // at the next step, breakpoint or not
  Json shown_ = Json::array();
};

}  // namespace tenon::tool
