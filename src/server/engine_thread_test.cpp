#include "server/engine_thread.h"

#include <gtest/gtest.h>

#include <future>

#include "session/testing.h"

namespace klotski {
namespace {

using Streams = EngineThread::Streams;

ServedModel served_tiny() { return serve_model(testing::tiny_model(), "tiny"); }

std::unique_ptr<Session> loaded_tiny(const std::shared_ptr<const OpenedModel>& model) {
  SessionOptions options;
  options.device = "cpu";
  auto session = std::make_unique<Session>(model, options);
  session->plan({.sequences = 4, .tokens_per_sequence = 200, .prompt_tokens = 100});
  session->load();
  return session;
}

// A loaded engine's thread, and requests to it.
class EngineThreadTest : public ::testing::Test {
 protected:
  EngineThread& start(int64_t most_waiting = 256) {
    std::promise<void> loaded;
    engine_.emplace(served_, metrics_,
                    EngineThread::Options{
                        .most_waiting = most_waiting,
                        .open_session = [this] { return loaded_tiny(served_.model); },
                        .loaded = [&loaded] { loaded.set_value(); },
                    });
    EXPECT_EQ(engine_->state(), EngineState::loading);
    engine_->start();
    loaded.get_future().wait();
    return *engine_;
  }
  std::shared_ptr<GenerationStream> submit(std::string_view body,
                                           std::optional<std::chrono::milliseconds> time = {}) {
    const GenerationCall call = parse_generation(body, Endpoint::completions, {});
    GenerationJob job{.choices = prepare_choices(call, served_, 0), .stream = {}};
    job.stream = std::make_shared<GenerationStream>(job.choices.size(), 1 << 20);
    if (time) job.deadline = job.arrival + *time;
    auto stream = job.stream;
    engine_->submit(std::move(job));
    return stream;
  }
  // The texts of all choices, one after the other.
  static std::string text_of(GenerationStream& stream) {
    std::map<size_t, std::string> texts;
    while (!stream.ended()) {
      for (const ChoiceUpdate& update : stream.take()) texts[update.choice] += update.text;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string all;
    for (const auto& [choice, text] : texts) all += text + "|";
    return all;
  }

  const ServedModel served_ = served_tiny();
  Metrics metrics_;
  std::optional<EngineThread> engine_;
};

constexpr const char* kStory = R"({"prompt": "Once upon a time", "max_tokens": 20})";
constexpr const char* kStoryText =
    " of the day, the National Assembly was in the hands of the National Assemb|";
constexpr const char* kLong =
    R"({"prompt": "Once upon a time", "max_tokens": 190, "ignore_eos": true})";

TEST_F(EngineThreadTest, GivesTheSameTextWhoeverElseIsServed) {
  start();
  auto other = submit(R"({"prompt": ["The", "A"], "n": 2, "temperature": 1.0, "max_tokens": 30})");
  auto story = submit(kStory);
  EXPECT_EQ(text_of(*story), kStoryText);
  text_of(*other);
  EXPECT_EQ(text_of(*submit(kStory)), kStoryText);
  EXPECT_EQ(engine_->state(), EngineState::ready);
  EXPECT_EQ(metrics_.stats({})["generated_tokens"], 4 * 30 + 2 * 20);
}

TEST_F(EngineThreadTest, AStopStringIsNotPartOfTheText) {
  start();
  auto stream = submit(
      R"({"prompt": "Once upon a time", "max_tokens": 20, "stop": ["National Ass", "zzz"]})");
  EXPECT_EQ(text_of(*stream), " of the day, the |");
}

TEST_F(EngineThreadTest, AFullQueueRefuses) {
  start(6);
  EXPECT_THROW(submit(R"({"prompt": "a", "n": 7})"), ApiError);
  std::vector<std::shared_ptr<GenerationStream>> accepted;
  std::optional<Status> refused;
  while (!refused && accepted.size() < 1000) {
    try {
      accepted.push_back(submit(kLong));
    } catch (const ApiError& error) {
      refused = error.status();
    }
  }
  EXPECT_EQ(refused, Status::too_many_requests);
  EXPECT_FALSE(engine_->has_room(6));
  for (const auto& stream : accepted) stream->abandon();
}

TEST_F(EngineThreadTest, AnAbandonedRequestLeavesTheEngine) {
  start();
  auto stream = submit(kLong);
  while (stream->take().empty()) std::this_thread::yield();
  EXPECT_TRUE(engine_->busy());
  stream->abandon();
  while (engine_->busy()) std::this_thread::yield();
  EXPECT_EQ(text_of(*submit(kStory)), kStoryText);
}

TEST_F(EngineThreadTest, ARequestEndsAtItsDeadline) {
  start();
  auto stream = submit(kLong, std::chrono::milliseconds(1));
  text_of(*stream);
  EXPECT_EQ(stream->error()->status(), Status::timeout);
}

TEST_F(EngineThreadTest, ARequestThatCannotFitFailsAlone) {
  start();
  auto stream = submit(R"({"prompt": "a", "n": 2, "max_tokens": 1000})");
  text_of(*stream);
  ASSERT_TRUE(stream->error() || stream->ended());
  EXPECT_EQ(text_of(*submit(kStory)), kStoryText);
}

TEST_F(EngineThreadTest, StoppingFailsUnfinishedRequests) {
  start();
  auto stream = submit(kLong);
  engine_->stop();
  text_of(*stream);
  EXPECT_EQ(stream->error()->status(), Status::unavailable);
  EXPECT_EQ(engine_->state(), EngineState::stopped);
  EXPECT_EQ(engine_->failure(), nullptr);
  EXPECT_THROW(submit(kStory), ApiError);
}

TEST_F(EngineThreadTest, AModelThatDoesNotLoadIsAFailure) {
  std::promise<void> stopped;
  engine_.emplace(served_, metrics_,
                  EngineThread::Options{
                      .open_session = []() -> std::unique_ptr<Session> {
                        fail(ErrorKind::does_not_fit, "too large");
                      },
                      .stopped = [&stopped] { stopped.set_value(); },
                  });
  engine_->start();
  stopped.get_future().wait();
  EXPECT_EQ(engine_->state(), EngineState::stopped);
  EXPECT_THROW(std::rethrow_exception(engine_->failure()), Error);
  EXPECT_THROW(submit(kStory), ApiError);
}

}  // namespace
}  // namespace klotski
