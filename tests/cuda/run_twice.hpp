// A program on a device, launch by launch and then as a CUDA graph.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/session.hpp>

#include <string>
#include <vector>

namespace tenon::testing {

struct RunOutcome {
  std::vector<HostBuffer> results;  ///< of the second run
  std::vector<std::string> notes;   ///< of all parts of the plan
};

/// `session` has its weights bound.
inline RunOutcome run_twice(Session& session, const std::vector<HostBuffer>& inputs) {
  std::vector<Buffer> given;
  std::vector<Shape> shapes;
  for (const HostBuffer& input : inputs) {
    given.push_back(input.to_device(cpu_device()));
    shapes.push_back(input.shape());
  }
  RunOutcome outcome;
  session.forward(given);
  for (const Buffer& output : session.forward(given)) outcome.results.push_back(output.to_host());
  const PlanReport report = session.report(shapes);
  for (const PlanReport::Part& part : report.parts) {
    outcome.notes.insert(outcome.notes.end(), part.notes.begin(), part.notes.end());
  }
  return outcome;
}

}  // namespace tenon::testing
