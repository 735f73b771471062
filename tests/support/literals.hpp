// Small arrays as tests write them: floats({2, 2}, {1, 2, 3, 4}).
#pragma once

#include <tenon/host_buffer.hpp>

#include <cstdint>
#include <initializer_list>

namespace tenon::testing {

inline HostBuffer floats(std::initializer_list<Axis> axes, std::initializer_list<float> values) {
  return HostBuffer::of<float>(Shape(axes, f32), values);
}

inline HostBuffer ints(std::initializer_list<Axis> axes,
                       std::initializer_list<std::int32_t> values) {
  return HostBuffer::of<std::int32_t>(Shape(axes, i32), values);
}

inline HostBuffer longs(std::initializer_list<Axis> axes,
                        std::initializer_list<std::int64_t> values) {
  return HostBuffer::of<std::int64_t>(Shape(axes, i64), values);
}

}  // namespace tenon::testing
