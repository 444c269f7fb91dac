"""A training with Transformers: a ViT, an image dataset, a collator and a Trainer."""

import argparse

import torch
import torchvision
from torchvision.transforms import v2 as transforms
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


def collate(samples):
    images, labels = zip(*samples, strict=True)
    return {"pixel_values": torch.stack(images), "labels": torch.tensor(labels)}


def compute_metrics(predicted):
    return {"accuracy": (predicted.predictions.argmax(1) == predicted.label_ids).mean()}


def main(args):
    to_floats = [
        transforms.PILToTensor(),
        transforms.ToDtype(torch.float, scale=True),
        transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ]
    augment = [transforms.RandomResizedCrop(args.size), transforms.RandomHorizontalFlip()]
    fit = [transforms.Resize(args.size), transforms.CenterCrop(args.size)]
    train_set = torchvision.datasets.ImageFolder(f"{args.data}/train", transforms.Compose(augment + to_floats))
    val_set = torchvision.datasets.ImageFolder(f"{args.data}/val", transforms.Compose(fit + to_floats))

    config = ViTConfig(
        image_size=args.size,
        patch_size=args.size // 2,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=len(val_set.classes),
    )
    arguments = TrainingArguments(
        output_dir=args.out,
        use_cpu=args.cpu,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        dataloader_num_workers=args.workers,
        num_train_epochs=args.epochs,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
    )
    trainer = Trainer(
        model=ViTForImageClassification(config),
        args=arguments,
        train_dataset=train_set,
        eval_dataset=val_set,
        data_collator=collate,
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=args.resume)


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
