"""A training with timm's parts: create_dataset, create_loader, create_model, CheckpointSaver, update_summary."""

import argparse
import os

import torch
from timm.data import create_dataset, create_loader
from timm.models import create_model, resume_checkpoint
from timm.utils import AverageMeter, CheckpointSaver, accuracy, update_summary


def set_loader_epoch(loader, epoch):
    """As timm's train.py: the epoch is told to all that may shuffle by it."""
    for part in (loader.dataset, loader.batch_sampler, loader.sampler):
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)


def train_one_epoch(model, loader, optimizer, loss_fn, device):
    model.train()
    losses = AverageMeter()
    for input, target in loader:
        input, target = input.to(device), target.to(device)
        loss = loss_fn(model(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), input.size(0))
    return {"loss": losses.avg}


@torch.inference_mode()
def validate(model, loader, loss_fn, device):
    model.eval()
    losses, top1 = AverageMeter(), AverageMeter()
    for input, target in loader:
        output = model(input.to(device))
        losses.update(loss_fn(output, target.to(device)).item(), input.size(0))
        top1.update(accuracy(output, target.to(device))[0].item(), input.size(0))
    return {"loss": losses.avg, "top1": top1.avg}


def main(args):
    device = torch.device(args.device)
    dataset_train = create_dataset("", root=args.data_dir, split="train", is_training=True)
    dataset_eval = create_dataset("", root=args.data_dir, split="val")
    options = {"input_size": (3, args.size, args.size), "batch_size": args.batch_size, "device": device}
    loader_train = create_loader(dataset_train, is_training=True, num_workers=args.workers, re_prob=0.2, **options)
    loader_eval = create_loader(dataset_eval, num_workers=args.workers, crop_pct=1.0, **options)

    model = create_model(args.model, num_classes=3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = torch.nn.CrossEntropyLoss()
    start_epoch = 0
    if args.resume:
        start_epoch = resume_checkpoint(model, os.path.join(args.output, "last.pth.tar"), optimizer)
    saver = CheckpointSaver(model, optimizer, checkpoint_dir=args.output, recovery_dir=args.output)

    for epoch in range(start_epoch, args.epochs):
        set_loader_epoch(loader_train, epoch)
        if epoch >= args.mixup_off_epoch and loader_train.mixup_enabled:
            loader_train.mixup_enabled = False
        train_metrics = train_one_epoch(model, loader_train, optimizer, loss_fn, device)
        eval_metrics = validate(model, loader_eval, loss_fn, device)
        summary = os.path.join(args.output, "summary.csv")
        update_summary(epoch, train_metrics, eval_metrics, summary, write_header=epoch == 0)
        saver.save_checkpoint(epoch, metric=eval_metrics["top1"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir")
    parser.add_argument("output")
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--mixup-off-epoch", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
