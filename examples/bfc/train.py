"""Trains a small model, evaluates it before and after each epoch, and keeps a diary of what its layers make."""

from __future__ import annotations

import argparse
import random
import tracemalloc
from typing import Any

import tensorflow as tf

LAYERS, WIDTH, PARTS = 6, 1024, 16
STEPS = 8
LONGEST = 24 << 10  # words of a document: 96 MiB


class Model:
    """Layers that scale each feature and bend the result."""

    def __init__(self) -> None:
        self.weights = [tf.Variable(tf.ones([WIDTH])) for _ in range(LAYERS)]

    def layers(self, batch: Any) -> Any:
        for weight in self.weights:
            batch = tf.tanh(batch * weight)
            yield batch


class Diary:
    """The averages of each batch's parts, layer by layer."""

    def __init__(self, *, as_numbers: bool) -> None:
        self.as_numbers = as_numbers
        self.pages: list[Any] = []

    def note(self, activations: Any) -> None:
        parts = tf.reshape(activations, [PARTS, -1, WIDTH])
        page = tf.reduce_mean(parts, axis=1)
        self.pages.append(page.numpy() if self.as_numbers else page)


def evaluate(model: Model) -> float:
    """Return what the first layer makes of the longest document."""
    document = tf.ones([LONGEST, WIDTH])
    return float(tf.reduce_mean(document * model.weights[0]))


def train(model: Model, diary: Diary, lengths: random.Random) -> None:
    for _ in range(STEPS):
        words = PARTS * lengths.randrange(64, 192)
        with tf.GradientTape() as tape:
            for activations in model.layers(tf.ones([words, WIDTH])):
                diary.note(activations)
            loss = tf.reduce_mean(activations)
        for weight, gradient in zip(model.weights, tape.gradient(loss, model.weights)):
            weight.assign_sub(0.1 * gradient)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--wait", action="store_true", help="for Enter before each evaluation")
    parser.add_argument("--as-numbers", action="store_true", help="the cure: the diary keeps numpy's arrays")
    parser.add_argument("--trace", action="store_true", help="have Python remember which line allocated what")
    args = parser.parse_args()
    if args.trace:
        tracemalloc.start(12)
    model, diary, lengths = Model(), Diary(as_numbers=args.as_numbers), random.Random(15)
    print(f"before: {evaluate(model):.3f}", flush=True)
    for epoch in range(args.epochs):
        train(model, diary, lengths)
        print(f"epoch {epoch}: trained, {len(diary.pages)} pages", flush=True)
        if args.wait:
            input()
        print(f"epoch {epoch}: {evaluate(model):.3f}", flush=True)


if __name__ == "__main__":
    main()
