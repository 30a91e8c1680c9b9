"""Outcomes: distances, winners and own distances of runs agree with each other."""

import numpy as np
import pytest

from advfrontier.pool import CHECKPOINT


def test_distances_are_the_end_of_the_trajectory(evaluation):
    trajectory = evaluation.trajectory
    assert trajectory.shape == (evaluation.ensemble.total // CHECKPOINT, len(evaluation.samples))
    assert (np.diff(trajectory, axis=0)[np.isfinite(trajectory[:-1])] <= 0).all()
    assert (evaluation.distances == trajectory[-1]).all()
    assert (evaluation.distances_at(2 * CHECKPOINT) == trajectory[1]).all()


def test_every_broken_sample_has_a_winner(evaluation):
    names = set(evaluation.ensemble.queries)
    for distance, winner in zip(evaluation.distances, evaluation.winners, strict=True):
        broken = 0 < distance < np.inf
        assert (winner in names) == broken
        assert (winner is None) == (not broken)


def test_tables_cannot_be_written_to(evaluation):
    for table in (evaluation.distances, evaluation.trajectory):
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 1.0
