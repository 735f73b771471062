// Random programs as the C++ that codegen() writes: the bits of a session that merges nothing.
#include "random_model.hpp"
#include "results.hpp"

#include <tenon/device.hpp>
#include <tenon/eager.hpp>
#include <tenon/session.hpp>

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;
using namespace tenon::testing;

using Arrays = std::vector<EagerArray>;

struct Compiled {
  std::uint64_t seed;
  Arrays (*call)(const Eager& eager, Arrays& x);
};

Arrays results_of(EagerArray one) { return {std::move(one)}; }

template <class... Each>
Arrays results_of(std::tuple<Each...> all) {
  return std::apply([](Each&... each) { return Arrays{std::move(each)...}; }, all);
}

}  // namespace

#include "random_code.inc"

namespace {

void check(const Compiled& compiled) {
  const RandomModel model = make_random_model({.seed = compiled.seed});
  const auto weights = std::make_shared<const WeightSet>(on_cpu(model.weights));
  for (const bool exact : {true, false}) {
    const std::vector<BackendPtr> backends = cpu_backends(exact ? 1 : 2, exact);
    Session session(model.program, {.backends = backends});
    session.set_merge(false);
    session.bind(weights);
    const Results wanted = on_host(session.forward(on_cpu(model.inputs)));
    // A weight that the session has computed from others is packed, for products in codes.
    const bool has_computed = !session.report(shapes_of(model.inputs)).computed.empty();
    const Eager eager(weights, backends);
    for (const bool gives_up : {false, true, false}) {
      std::vector<Buffer> kept = gives_up
                                     ? to_give_up(model.inputs, cpu_device()->default_mem_region())
                                     : on_cpu(model.inputs);
      Arrays inputs(kept.begin(), kept.end());
      if (gives_up) kept.clear();
      std::vector<Buffer> outputs;
      for (const EagerArray& output : compiled.call(eager, inputs)) {
        outputs.push_back(output.to_buffer());
      }
      if (!exact && has_computed) {
        largest_error("the code", on_host(outputs), wanted, 0.2);
      } else {
        compare_bits("the code", on_host(outputs), wanted);
      }
      if (!gives_up) compare_bits("inputs that were kept", on_host(kept), model.inputs);
    }
  }
}

}  // namespace

int main() {
  int failed = 0;
  const auto fail = [&](std::uint64_t seed, const std::string& why) {
    ++failed;
    fmt::print("seed {}: {}\n", seed, why);
  };
  for (const Compiled& one : compiled) {
    try {
      check(one);
    } catch (const Failure& failure) {
      fail(one.seed, failure.what);
    } catch (const std::exception& error) {
      fail(one.seed, error.what());
    }
  }
  fmt::print("{} random programs as C++, {} failed\n", std::size(compiled), failed);
  return failed == 0 ? 0 : 1;
}
