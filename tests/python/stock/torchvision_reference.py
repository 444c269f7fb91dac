"""A training in the manner of torchvision's references/classification/train.py: the same functions and loops."""

import argparse
import datetime
import os
import warnings

import torch
import torchvision
from torchvision.transforms import v2 as transforms


def log_every(iterable, header):
    started = datetime.datetime.now()
    for i, obj in enumerate(iterable):
        yield obj
        if i + 1 == len(iterable):
            print(f"{header} [{i + 1}/{len(iterable)}] {datetime.datetime.now() - started}")


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch):
    model.train()
    for i, (image, target) in enumerate(log_every(data_loader, f"Epoch: [{epoch}]")):
        image, target = image.to(device), target.to(device)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def evaluate(model, criterion, data_loader, device):
    model.eval()
    num_processed_samples, correct, losses = 0, 0, 0.0
    for image, target in log_every(data_loader, "Test:"):
        image, target = image.to(device), target.to(device)
        output = model(image)
        losses += criterion(output, target).item() * image.shape[0]
        correct += (output.argmax(1) == target).sum().item()
        num_processed_samples += image.shape[0]
    if hasattr(data_loader.dataset, "__len__") and len(data_loader.dataset) != num_processed_samples:
        warnings.warn(f"the dataset has {len(data_loader.dataset)} samples, evaluated were {num_processed_samples}")
    print(f"Test: loss {losses / num_processed_samples:.4f} accuracy {correct / num_processed_samples:.4f}")


def main(args):
    device = torch.device(args.device)
    augment = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    fit = [transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    to_floats = [
        transforms.PILToTensor(),
        transforms.ToDtype(torch.float, scale=True),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    dataset = torchvision.datasets.ImageFolder(
        os.path.join(args.data_path, "train"), transforms.Compose(augment + to_floats)
    )
    dataset_test = torchvision.datasets.ImageFolder(
        os.path.join(args.data_path, "val"), transforms.Compose(fit + to_floats)
    )
    train_sampler = torch.utils.data.RandomSampler(dataset)
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    data_loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers, pin_memory=True
    )
    data_loader_test = torch.utils.data.DataLoader(
        dataset_test, batch_size=args.batch_size, num_workers=args.workers, pin_memory=True
    )

    model = torchvision.models.get_model(args.model, num_classes=len(dataset.classes)).to(device)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    path = os.path.join(args.output_dir, "checkpoint.pth")
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start_epoch = checkpoint["epoch"] + 1

    for epoch in range(start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch)
        evaluate(model, criterion, data_loader_test, device)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data_path")
    parser.add_argument("output_dir")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
