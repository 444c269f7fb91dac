"""A training with Accelerate: gradients of several batches, metrics of all ranks, saved and loaded states."""

import argparse
import os

import torch
import torchvision
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torchvision.transforms import v2 as transforms


def network(num_classes):
    layers = [torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16 * 4 * 4, num_classes))


def main(args):
    accelerator = Accelerator(cpu=args.cpu, gradient_accumulation_steps=2)
    to_floats = [
        transforms.PILToTensor(),
        transforms.ToDtype(torch.float, scale=True),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    augment = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    fit = [transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    train_set = torchvision.datasets.ImageFolder(f"{args.data}/train", transforms.Compose(augment + to_floats))
    val_set = torchvision.datasets.ImageFolder(f"{args.data}/val", transforms.Compose(fit + to_floats))
    options = {"batch_size": args.batch_size, "num_workers": args.workers}
    train_loader = DataLoader(train_set, shuffle=True, **options)
    val_loader = DataLoader(val_set, **options)

    model = network(len(val_set.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    train_loader, val_loader = accelerator.prepare(train_loader, val_loader)
    start = 0
    if args.resume:
        start = len(os.listdir(args.out))
        accelerator.load_state(f"{args.out}/epoch-{start - 1}")

    for epoch in range(start, args.epochs):
        model.train()
        for images, labels in train_loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        correct = []
        for images, labels in val_loader:
            with torch.inference_mode():
                predicted = model(images).argmax(1)
            correct.append(accelerator.gather_for_metrics(predicted == labels))
        accelerator.print(f"epoch {epoch}: accuracy {torch.cat(correct).float().mean():.4f}")
        accelerator.save_state(f"{args.out}/epoch-{epoch}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
