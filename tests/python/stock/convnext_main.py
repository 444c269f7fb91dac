"""A training in the manner of ConvNeXt's main.py and engine.py, as Swin, MAE and DINO have it: the same loops and calls."""

import argparse
import json
import os

import torch
import torchvision
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.models import create_model
from timm.utils import accuracy
from torchvision.transforms import v2 as transforms


class MetricLogger:
    """Averages of named figures, and a line now and then."""

    def __init__(self):
        self.sums, self.counts = {}, {}

    def update(self, n=1, **figures):
        for name, value in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * n
            self.counts[name] = self.counts.get(name, 0) + n

    def log_every(self, iterable, print_freq, header):
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0 or i == len(iterable) - 1:
                print(f"{header} [{i}/{len(iterable)}] {self.averages()}")

    def averages(self):
        return {name: total / self.counts[name] for name, total in self.sums.items()}


def train_one_epoch(model, criterion, data_loader, optimizer, device, epoch, mixup_fn, start_steps, lr_schedule, steps):
    model.train(True)
    metric_logger = MetricLogger()
    for data_iter_step, (samples, targets) in enumerate(metric_logger.log_every(data_loader, 10, f"Epoch: [{epoch}]")):
        if data_iter_step >= steps:
            continue
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr_schedule[start_steps + data_iter_step]
        samples = samples.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)
        samples, targets = mixup_fn(samples, targets)
        loss = criterion(model(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric_logger.update(loss=loss.item())
    return metric_logger.averages()


@torch.no_grad()
def evaluate(data_loader, model, device):
    criterion = torch.nn.CrossEntropyLoss()
    metric_logger = MetricLogger()
    model.eval()
    for batch in metric_logger.log_every(data_loader, 10, "Test:"):
        images = batch[0].to(device, non_blocking=True)
        target = batch[-1].to(device, non_blocking=True)
        output = model(images)
        acc1 = accuracy(output, target)[0]
        metric_logger.update(n=images.shape[0], loss=criterion(output, target).item(), acc1=acc1.item())
    return metric_logger.averages()


def main(args):
    device = torch.device(args.device)
    world_size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    augment = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    fit = [transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    to_floats = [
        transforms.PILToTensor(),
        transforms.ToDtype(torch.float, scale=True),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    dataset_train = torchvision.datasets.ImageFolder(
        os.path.join(args.data_path, "train"), transforms.Compose(augment + to_floats)
    )
    dataset_val = torchvision.datasets.ImageFolder(
        os.path.join(args.data_path, "val"), transforms.Compose(fit + to_floats)
    )
    sampler_train = torch.utils.data.DistributedSampler(
        dataset_train, num_replicas=world_size, rank=rank, shuffle=True, seed=0
    )
    sampler_val = torch.utils.data.SequentialSampler(dataset_val)
    data_loader_train = torch.utils.data.DataLoader(
        dataset_train, sampler=sampler_train, batch_size=args.batch_size, num_workers=args.workers, drop_last=True
    )
    data_loader_val = torch.utils.data.DataLoader(
        dataset_val, sampler=sampler_val, batch_size=int(1.5 * args.batch_size), num_workers=args.workers, drop_last=False
    )

    model = create_model(args.model, num_classes=3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mixup_fn = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=3)
    criterion = SoftTargetCrossEntropy()
    num_training_steps_per_epoch = len(dataset_train) // (args.batch_size * world_size)
    lr_schedule = [0.01 / (1 + step) for step in range(args.epochs * num_training_steps_per_epoch)]
    path = os.path.join(args.output_dir, "checkpoint.pth")
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(checkpoint["model"])
        start_epoch = checkpoint["epoch"] + 1

    for epoch in range(start_epoch, args.epochs):
        data_loader_train.sampler.set_epoch(epoch)
        train_stats = train_one_epoch(
            model, criterion, data_loader_train, optimizer, device, epoch, mixup_fn,
            epoch * num_training_steps_per_epoch, lr_schedule, num_training_steps_per_epoch,
        )  # fmt: skip
        test_stats = evaluate(data_loader_val, model, device)
        print(f"Accuracy of the network on the {len(dataset_val)} test images: {test_stats['acc1']:.1f}%")
        torch.save({"model": model.state_dict(), "epoch": epoch}, path)
        with open(os.path.join(args.output_dir, "log.txt"), "a", encoding="utf-8") as log:
            log.write(json.dumps({"train": train_stats, "test": test_stats, "epoch": epoch}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data_path")
    parser.add_argument("output_dir")
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
