// shade_torch.hpp: batches of shade as libtorch's tensors. Header only: link shade_client and
// libtorch. Errors are exceptions of shade::Error. How to use it: docs/cpp.md.
#pragma once

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shade_client.h"

namespace shade {

// A failed call: its code (SHADE_GONE, ...) and text.
struct Error : std::runtime_error {
  explicit Error(int code) : std::runtime_error(shade_error()), code(code) {}
  int code;
};

inline void check(int code) {
  if (code != SHADE_OK) throw Error(code);
}

// A batch. Its tensors lie in shared memory, which the last of them gives back to the daemon.
class Batch {
 public:
  explicit Batch(shade_batch* batch) : batch_(batch, shade_batch_release) {}

  // The images of the view with this number. Most batches have view 0 only.
  at::Tensor images(uint32_t view = 0) const { return of_view("images", view); }
  // Left, top, width and height of the part of its source that each image shows.
  at::Tensor crops(uint32_t view = 0) const { return of_view("crops", view); }
  // How images are mirrored after the crop. Bit 0: from left to right; bit 1: from top to bottom.
  at::Tensor flipped(uint32_t view = 0) const { return of_view("flipped", view); }
  at::Tensor labels() const { return tensor("labels"); }
  at::Tensor ids() const { return tensor("ids"); }
  at::Tensor weights() const { return tensor("weights"); }
  at::Tensor flags() const { return tensor("flags"); }
  // The image of one row, for "decode": "none".
  at::Tensor image(uint32_t row) const {
    DLManagedTensor* made = nullptr;
    check(shade_batch_image(get(), row, &made));
    return at::fromDLPack(made);
  }
  shade_batch_info info() const {
    shade_batch_info info{};
    info.size = sizeof info;
    check(shade_batch_describe(get(), &info));
    return info;
  }
  shade_batch* get() const { return batch_.get(); }

 private:
  at::Tensor of_view(const char* column, uint32_t view) const {
    return tensor((std::string(column) + "." + std::to_string(view)).c_str());
  }

  at::Tensor tensor(const char* column) const {
    DLManagedTensor* made = nullptr;
    check(shade_batch_tensor(get(), column, &made));
    return at::fromDLPack(made);
  }

  std::unique_ptr<shade_batch, decltype(&shade_batch_release)> batch_;
};

// The rest of an epoch, for one loop: `for (const shade::Batch& batch : loader.epoch(0))`.
class Epoch {
 public:
  struct End {};
  class Iterator {
   public:
    explicit Iterator(Epoch* epoch) : epoch_(epoch) { ++*this; }
    const Batch& operator*() const { return *batch_; }
    bool operator!=(End) const { return batch_.has_value(); }
    Iterator& operator++() {
      batch_.reset();
      shade_batch* next = nullptr;
      const int code = shade_next(epoch_->session_, epoch_->timeout_s_, &next);
      if (code == SHADE_END) return *this;
      check(code);
      batch_.emplace(next);
      return *this;
    }

   private:
    Epoch* epoch_;
    std::optional<Batch> batch_;
  };

  Epoch(shade_session* session, double timeout_s) : session_(session), timeout_s_(timeout_s) {}
  Iterator begin() { return Iterator(this); }
  End end() const { return {}; }

 private:
  shade_session* session_;
  double timeout_s_;
};

// One rank's session. Options: one JSON object with the names of Python's Loader.
class Loader {
 public:
  explicit Loader(const std::string& dataset, const std::string& options, double timeout_s = 300)
      : session_(open(dataset, options), shade_close), timeout_s_(timeout_s) {}

  Epoch epoch(uint32_t number, uint32_t first_batch = 0) {
    check(shade_start_epoch(get(), number, first_batch));
    return Epoch(get(), timeout_s_);
  }
  // One loss for each row, or for the first ones; on any device.
  void report(const Batch& batch, const at::Tensor& losses) {
    const at::Tensor flat = losses.detach().to(at::kCPU, at::kFloat).contiguous();
    check(shade_report(get(), batch.get(), flat.data_ptr<float>(), static_cast<size_t>(flat.numel())));
  }
  std::string info() const { return text(shade_info); }
  std::string stats() const { return text(shade_stats); }
  std::vector<uint8_t> save() const {
    uint8_t* state = nullptr;
    size_t len = 0;
    check(shade_save(get(), &state, &len));
    const std::unique_ptr<uint8_t, decltype(&shade_free)> owner(state, shade_free);
    return std::vector<uint8_t>(state, state + len);
  }
  // The epoch that goes on, and its first batch: give them to epoch().
  std::pair<uint32_t, uint32_t> load(const std::vector<uint8_t>& state) {
    std::pair<uint32_t, uint32_t> at;
    check(shade_load(get(), state.data(), state.size(), &at.first, &at.second));
    return at;
  }
  shade_session* get() const { return session_.get(); }

 private:
  static shade_session* open(const std::string& dataset, const std::string& options) {
    shade_session* session = nullptr;
    check(shade_open(dataset.c_str(), options.c_str(), &session));
    return session;
  }
  std::string text(int (*call)(const shade_session*, char**)) const {
    char* json = nullptr;
    check(call(get(), &json));
    const std::unique_ptr<char, decltype(&shade_free)> owner(json, shade_free);
    return json;
  }

  std::unique_ptr<shade_session, decltype(&shade_close)> session_;
  double timeout_s_;
};

}  // namespace shade
