"""Single samples: rows and classes with raw values, and pictures that show the change."""

import numpy as np
import torch

from advfrontier.evaluation.samples import as_bytes, class_table, pictures, sample_table


def test_rows_are_the_samples_in_their_order(evaluation):
    rows = sample_table(evaluation).records()
    assert [row["row"] for row in rows] == list(range(len(evaluation.samples)))
    assert [row["distance"] for row in rows] == evaluation.distances.tolist()
    assert [row["label"] for row in rows] == evaluation.labels.tolist()
    for row in rows:
        wrong = row["prediction"] != row["label"]
        assert (row["distance"] == 0) == wrong
        assert (row["queries"] == 0) == wrong


def test_classes_have_their_samples_and_accuracies(evaluation):
    radius = float(np.median(evaluation.distances))
    rows = class_table(evaluation, [("r", radius)]).records()
    assert [row["class"] for row in rows] == sorted(set(evaluation.labels.tolist()))
    assert sum(row["samples"] for row in rows) == len(evaluation.samples)
    for row in rows:
        own = evaluation.distances[evaluation.labels.numpy() == row["class"]]
        assert row["clean_accuracy"] == (own > 0).mean()
        assert row["robust_accuracy_at_r"] == (own > radius).mean()
        assert row["taken_for"] != row["class"]


def test_pictures_are_of_correct_samples_and_show_the_change(evaluation):
    items = pictures(evaluation, evaluation.distances, 3)
    assert len(items) == 3
    assert [item.row for item in items] == sorted({item.row for item in items})
    for item in items:
        assert evaluation.distances[item.row] == item.distance > 0
        assert item.prediction != item.label
        assert item.original.dtype == np.uint8
        changed = np.abs(item.adversarial.astype(int) - item.original.astype(int)).max()
        one = item.magnification / 255  # of a level, to which pictures are rounded
        assert abs(one * changed - 0.5) <= one
    assert pictures(evaluation, evaluation.distances, 0) == ()
    assert pictures(evaluation, np.zeros_like(evaluation.distances), 3) == ()


def test_images_become_bytes_with_channels_last():
    black, white = as_bytes(torch.zeros(1, 2, 3)), as_bytes(torch.ones(3, 2, 3))
    assert (black.shape, white.shape) == ((2, 3, 1), (2, 3, 3))
    assert (int(black.max()), int(white.min())) == (0, 255)
