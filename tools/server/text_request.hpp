#pragma once

#include "server/answer_service.hpp"
#include "server/request_fields.hpp"

#include <tenon/models/answer_batch.hpp>

#include <exception>
#include <string>
#include <vector>

namespace tenon::tool {

/// A client's request for text, from its JSON to the answers and back.
class TextRequest {
 public:
  TextRequest() = default;
  virtual ~TextRequest() = default;
  TextRequest(const TextRequest&) = delete;
  TextRequest& operator=(const TextRequest&) = delete;

  virtual bool is_stream() const = 0;
  /// What is to be answered; once.
  virtual std::vector<models::AnswerRequest> requests() = 0;

  /// The response as a whole, to all answers, in order.
  virtual Json response(const std::vector<models::Generated>& answers) = 0;

  /// The response as a stream of server-sent events: first this, then piece() of each event, at last ending().
  virtual std::string beginning() = 0;
  virtual std::string piece(const AnswerEvent& event) = 0;
  virtual std::string ending() = 0;
  /// What ends the stream in place of further pieces where it fails.
  virtual std::string failed(const std::exception_ptr& error) = 0;
};

/// Why an answer is none: its error, or that the server ends. Null for one that is.
std::exception_ptr failure(const models::FinishedAnswer& answer);

}  // namespace tenon::tool
