// Recurrences over the steps of a sequence: a thread per row, head and channel, whose state lies in
// its part of the result. All arrays are f32.
#pragma once

#include "kernels/images.hpp"

#include <cstdint>

namespace tenon::cuda {

struct Channel {
  std::uint32_t row, head, channel;
};

/// The numbers of one state.
struct State {
  Address data;
  std::int64_t step;
  TENON_DEVICE float& operator[](std::uint32_t n) const {
    return *global<float>(data + static_cast<Address>(n * step));
  }
};
TENON_DEVICE void copy_state(const State& from, const State& to, std::uint32_t numbers) {
  for (std::uint32_t n = 0; n < numbers; ++n) to[n] = from[n];
}

TENON_DEVICE float step_value(const Array& x, const Channel& at, std::uint32_t s, std::uint32_t n) {
  return load_as(0.0f, x, byte_at(x, at.row, s, at.head, n));
}

/// The state of a channel behind the results of all steps or, with every_state, of step s.
TENON_DEVICE State state_in_y(const RecurrenceArgs& args, const Channel& at, std::uint32_t s) {
  const std::int64_t(&steps)[max_axes] = args.y.steps.bytes;
  const std::int64_t first =
      args.every_state
          ? at.row * steps[0] + s * steps[1] + at.head * steps[3] + at.channel * steps[4]
          : byte_at(args.y, at.row, args.steps, at.head, at.channel);
  return {args.y.data + static_cast<Address>(first), args.every_state ? steps[2] : steps[1]};
}

/// step(channel, s, from, to) makes the next state and gives y; the two may be one.
template <class StepFunction>
TENON_DEVICE void run_recurrence(const Thread& thread, const RecurrenceArgs& args,
                                 const Array& begin, const StepFunction& step) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index index = index_of(args.axes, i);
    const Channel at{index.at[0], index.at[1], index.at[2]};
    std::int64_t length = args.steps;
    if (args.lengths != 0) {
      const auto byte = static_cast<Address>(at.row * args.lengths_step);
      length = load_integer(DType::i32, args.lengths + byte);
      if (length < 0 || length > args.steps) {
        report(args.reporter, length, std::int64_t{args.steps} + 1);
        continue;
      }
    }
    const std::int64_t first = byte_at(begin, at.row, 0, at.head, at.channel);
    State from{begin.data + static_cast<Address>(first), begin.steps.bytes[1]};
    if (!args.every_state) {
      const State last = state_in_y(args, at, 0);
      copy_state(from, last, args.states);
      from = last;
    }
    for (std::uint32_t s = 0; s < args.steps; ++s) {
      const State to = state_in_y(args, at, s);
      const float y = s < length ? step(at, s, from, to) : 0.0f;
      if (!args.every_state) {
        store_as(y, args.y, byte_at(args.y, at.row, s, at.head, at.channel));
      } else if (s >= length) {
        copy_state(from, to, args.states);
      }
      from = to;
    }
  }
}

TENON_DEVICE void scan_selectively(const Thread& thread, const RecurrenceArgs& args) {
  const Array &x = args.in[0], &dt = args.in[1], &a = args.in[2], &in = args.in[3],
              &out = args.in[4];
  run_recurrence(thread, args, args.in[5],
                 [&](const Channel& at, std::uint32_t s, const State& from, const State& to) {
                   const Channel group{at.row, at.head / args.heads_of_group, 0};
                   const float t = step_value(dt, at, s, 0),
                               added = t * step_value(x, at, s, at.channel);
                   float y = 0, decay = 0;
                   for (std::uint32_t n = 0; n < args.states; ++n) {
                     if (n == 0 || !args.has_one_decay) {
                       decay = expf(t * load_as(0.0f, a, byte_at(a, at.head, n, 0, 0)));
                     }
                     const float now = decay * from[n] + added * step_value(in, group, s, n);
                     to[n] = now;
                     y += step_value(out, group, s, n) * now;
                   }
                   return y;
                 });
}

TENON_DEVICE void mix_time(const Thread& thread, const RecurrenceArgs& args) {
  const Array &r = args.in[0], &w = args.in[1], &k = args.in[2], &v = args.in[3], &a = args.in[4],
              &b = args.in[5];
  run_recurrence(thread, args, args.in[6],
                 [&](const Channel& at, std::uint32_t s, const State& from, const State& to) {
                   float mixed = 0, y = 0;
                   for (std::uint32_t n = 0; n < args.states; ++n)
                     mixed += step_value(a, at, s, n) * from[n];
                   const float value = step_value(v, at, s, at.channel);
                   for (std::uint32_t n = 0; n < args.states; ++n) {
                     const float now = step_value(w, at, s, n) * from[n] +
                                       step_value(b, at, s, n) * mixed +
                                       step_value(k, at, s, n) * value;
                     to[n] = now;
                     y += step_value(r, at, s, n) * now;
                   }
                   return y;
                 });
}

}  // namespace tenon::cuda
