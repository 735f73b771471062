#include <tenon/lowered.hpp>

#include <functional>
#include <set>

namespace tenon {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const Step> wanted) : wanted_(wanted) {}

  /// `counts`: of the loops around `steps`; `all`: they are among the wanted ones.
  void walk(std::span<const Step> steps, LoopSteps counts, bool all) {
    for (const Step& step : steps) {
      const bool inside = all || is_wanted(step);
      if (step.kind == Step::Kind::loop) {
        counts[static_cast<std::size_t>(step.depth)] = step.count;
        walk(step.body, counts, inside);
      } else if (inside) {
        for (const Operand& input : step.inputs) add(input.place, counts, {}, 0);
      }
    }
  }
  std::vector<std::size_t> list() const { return {found_.begin(), found_.end()}; }

 private:
  bool is_wanted(const Step& step) const {
    const std::less<> before;
    return !before(&step, wanted_.data()) && before(&step, wanted_.data() + wanted_.size());
  }
  void add(const Place& place, const LoopSteps& counts, LoopSteps at, std::size_t depth) {
    if (place.kind != Place::Kind::constant) return;
    if (depth == max_loop_depth) {
      found_.insert(place.entry_in(at));
      return;
    }
    const std::int64_t count = place.entry_step[depth] == 0 ? 1 : counts[depth];
    for (at[depth] = 0; at[depth] < count; ++at[depth]) add(place, counts, at, depth + 1);
  }

  std::span<const Step> wanted_;
  std::set<std::size_t> found_;
};

}  // namespace

std::vector<std::size_t> constants_read(const Lowered& program, std::span<const Step> wanted) {
  Reader reader(wanted);
  reader.walk(program.steps, {}, false);
  return reader.list();
}

}  // namespace tenon
