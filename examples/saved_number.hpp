// What checkpoints of examples/train_digits.cpp and examples/finetune_lora.cpp hold beside parameters.
#pragma once

#include <tenon/tenon.hpp>

#include <cstdint>
#include <string>

/// The number of this name. Errc::bad_shape, with the file's name, where it is not one i64.
inline std::int64_t saved_number(const tenon::io::File& file, const std::string& name) {
  const tenon::HostBuffer data = file.at(name).data();
  if (data.shape() != tenon::Shape({1}, tenon::i64)) {
    throw tenon::Error(tenon::Errc::bad_shape, file.path().string(),
                       "'" + name + "' is " + to_string(data.shape()) + ", not one number");
  }
  return data.values<std::int64_t>()[0];
}
