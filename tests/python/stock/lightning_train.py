"""A training with Lightning: a module, two DataLoaders, a CSV log and checkpoints."""

import argparse

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from torchvision.transforms import v2 as transforms


def network(num_classes):
    layers = [torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16 * 4 * 4, num_classes))


class Classifier(lightning.LightningModule):
    def __init__(self, num_classes):
        super().__init__()
        self.model = network(num_classes)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        output = self.model(images)
        self.log("val_loss", torch.nn.functional.cross_entropy(output, labels))
        self.log("val_accuracy", (output.argmax(1) == labels).float().mean())


def main(args):
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

    trainer = lightning.Trainer(
        accelerator=args.accelerator,
        devices=1,
        max_epochs=args.epochs,
        logger=CSVLogger(args.out, "logs"),
        callbacks=[ModelCheckpoint(args.out, save_last=True, monitor="val_loss")],
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    resume = f"{args.out}/last.ckpt" if args.resume else None
    trainer.fit(Classifier(3), train_loader, val_loader, ckpt_path=resume)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
