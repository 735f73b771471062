#include "guarded_array.hpp"
#include "results.hpp"
#include "support/eager_program.hpp"
#include "ways.hpp"

#include <tenon/device.hpp>
#include <tenon/eager.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

void check_eager(const RandomModelPlan& plan, CheckCounts& counts) {
  const RandomModel model = make_random_model(plan);
  GuardedArrays arrays;
  std::map<std::string, Buffer> guarded;
  for (const auto& [name, value] : model.weights) guarded[name] = arrays.copy(value);
  const auto weights = std::make_shared<const WeightSet>(std::move(guarded));
  for (const bool exact : {true, false}) {
    const std::vector<BackendPtr> backends = cpu_backends(exact ? 1 : 2, exact);
    Session session(model.program, {.backends = backends});
    session.set_merge(false);
    session.bind(weights);
    const Results wanted = on_host(session.forward(on_cpu(model.inputs)));
    const bool has_computed = !session.report(shapes_of(model.inputs)).computed.empty();
    Eager eager(weights, backends);
    for (const bool gives_up : {false, true, false}) {
      // What the caller keeps stays as it is.
      std::vector<Buffer> kept = gives_up
                                     ? to_give_up(model.inputs, cpu_device()->default_mem_region())
                                     : on_cpu(model.inputs);
      std::vector<EagerArray> inputs(kept.begin(), kept.end());
      if (gives_up) kept.clear();
      std::vector<Buffer> outputs;
      for (const EagerArray& output : run_eagerly(eager, model.program, std::move(inputs))) {
        outputs.push_back(output.to_buffer());
      }
      // A weight that the session has computed from others is packed, for products in codes.
      if (!exact && has_computed) {
        largest_error("op by op", on_host(outputs), wanted, 0.2);
      } else {
        compare_bits(exact ? "op by op, exact" : "op by op", on_host(outputs), wanted);
      }
      if (!gives_up) compare_bits("inputs that were kept", on_host(kept), model.inputs);
      counts.runs += 2;
    }
  }
}

}  // namespace tenon::testing
