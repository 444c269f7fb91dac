// A whole training in C++: softmax regression on the pixels, with draws by importance.
//
//   train DATASET [EPOCHS]
//
// DATASET is a folder made by `shade-pack create`. Each epoch prints the mean loss, and the first
// one its ids, labels and the sum of its pixels, for comparison with Python's Loader.
#include <c10/core/GradMode.h>
#include <shade_torch.hpp>

#include <cstdio>
#include <cstdlib>

int main(int count, char** arguments) try {
  if (count < 2) {
    std::fprintf(stderr, "usage: train DATASET [EPOCHS]\n");
    return 2;
  }
  const uint32_t epochs = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 3;
  const int64_t side = 16, classes = 1000;
  shade::Loader loader(arguments[1], R"({
    "batch_size": 16, "seed": 7, "preset": "clairvoyant",
    "decode": [{"RandomResizedCrop": {"size": 16}}, {"RandomHorizontalFlip": {}}]
  })");

  at::Tensor model = at::zeros({3 * side * side, classes}).set_requires_grad(true);
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
    double sum = 0;
    int64_t samples = 0;
    for (const shade::Batch& batch : loader.epoch(epoch)) {
      const at::Tensor images = batch.images(), labels = batch.labels();
      const at::Tensor inputs = images.to(at::kFloat).div(255).flatten(1);
      const at::Tensor losses =
          at::cross_entropy_loss(inputs.mm(model), labels, {}, at::Reduction::None);
      // The weights make draws by importance unbiased.
      (losses * batch.weights()).mean().backward();
      {
        c10::NoGradGuard guard;
        model -= 0.01 * model.grad();
        model.mutable_grad().reset();
      }
      loader.report(batch, losses);

      sum += losses.sum().item<double>();
      samples += losses.numel();
      if (epoch > 0) continue;
      const at::Tensor ids = batch.ids();
      for (int64_t row = 0; row < ids.numel(); ++row) {
        std::printf("%ld %ld %ld\n", long(ids[row].item<int64_t>()), long(labels[row].item<int64_t>()),
                    long(images[row].sum().item<int64_t>()));
      }
    }
    std::printf("epoch %u: %ld samples, mean loss %.4f\n", epoch, long(samples), sum / samples);
  }
} catch (const shade::Error& error) {
  std::fprintf(stderr, "code %d: %s\n", error.code, error.what());
  return 1;
}
