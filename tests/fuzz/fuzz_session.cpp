// Any bytes as the sections of a session's snapshot, whose checksums are right: what loads can be
// run and saved, and loads again.
#include "fuzz/memory_file.hpp"
#include "fuzz/run_program.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>

#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace tenon::testing {

void fuzz_session(Bytes bytes) {
  register_reference_backend();
  static const std::vector<BackendPtr> backends{make_backend("reference")};
  const std::string file = scratch_file("session");
  {
    SnapshotWriter writer(file);
    const char* const* name = session_sections;
    for (const auto part : split_sections(bytes, std::size(session_sections))) {
      writer.add(*name++, part);
    }
    writer.commit();
  }
  std::optional<Session> session;
  try {
    session = Session::load(file, backends);
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
    return;
  }
  if (const auto lowered = lower_small(session->program())) {
    try {
      session->forward(made_up_inputs(*lowered));
    } catch (const Error& error) {
      if (error.code() == Errc::internal) fail("an internal error");
    }
  }
  try {
    session->save(file);
  } catch (const Error& error) {
    if (error.code() != Errc::call_order) fail("a session that loads cannot be saved");
    return;  // the file has weights without data
  }
  Session::load(file, backends);
}

}  // namespace tenon::testing
