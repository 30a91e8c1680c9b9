"""AutoAttack's call shape over an ensemble of minimum-norm attacks: change one import line.

    from advfrontier.autoattack_api import AutoAttack

    adversary = AutoAttack(model, norm="Linf", eps=8 / 255)
    x_adv = adversary.run_standard_evaluation(x, y, bs=250)

The points that come back lie within ε, where any were found; the others are the images themselves.
Unlike with one ε, the whole curve is known afterwards: `adversary.evaluation`. Where the model's
gradients fail a check, the runs that need none are run too, and their queries counted apart:
`adversary.black_box`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from advfrontier.engine import LAST_LOOK, Oracle, check_data, vote
from advfrontier.errors import FrontierError, printable, whole_number
from advfrontier.evaluation.evaluate import evaluate
from advfrontier.evaluation.evaluation import Evaluation
from advfrontier.evaluation.radii import as_radius
from advfrontier.execution import Machine
from advfrontier.flags import Kind, doubts
from advfrontier.pool import MAX_QUERIES, TARGETS, Ensemble, find_ensemble, tier_queries
from advfrontier.record import below
from advfrontier.record.folder import check_empty
from advfrontier.threat.names import norm_name

# AutoAttack's versions, and the tiers that stand in for them.
VERSIONS = {"standard": "4k", "plus": "12k", "rand": "1k"}
# AutoAttack's attacks, and the runs that stand in for them.
_TARGETS = range(1, TARGETS + 1)
ATTACKS = {
    "apgd-ce": ("apgd_min-ce",),
    "apgd-dlr": ("apgd_min-dlr",),
    "apgd-t": tuple(f"apgd_min-dlr:target{k}" for k in _TARGETS),
    "fab": ("fab_min",),
    "fab-t": tuple(f"fab_min:target{k}" for k in _TARGETS),
    "square": ("square_min",),
}
_FAILED = {
    Kind.ZERO_GRADIENTS,
    Kind.BAD_GRADIENTS,
    Kind.MISLEADING_GRADIENTS,
    Kind.BEATEN,
    Kind.NOISE,
    Kind.PROBABILITIES,
}


class AutoAttack:
    """Drop-in for AutoAttack's class of this name: its constructor and usual methods.

    Args:
        model: From images in [0, 1] to logits.
        norm: `L1`, `L2` or `Linf`.
        eps: Radius at which robust accuracy is printed: a number, or a text such as `8/255`.
        seed: Random seed; None for 42.
        verbose: Print what is done, and the results.
        attacks_to_run: Runs of a custom ensemble, such as `["fmn", "apgd_min-dlr"]`; needs
            `version="custom"`.
        version: `standard` (4k queries), `plus` (12k), `rand` (1k, each the mean of 20 passes) or
            `custom`.
        is_tf_model: Must be False; TensorFlow is not supported.
        device: Device of the model; by default where the model is.
        log_path: File to which the printed lines are appended.
    """

    def __init__(  # noqa: PLR0917  # as AutoAttack has them
        self,
        model: Callable[[Tensor], Tensor],
        norm: str = "Linf",
        eps: float | str = 0.3,
        seed: int | None = None,
        verbose: bool = True,  # noqa: FBT001, FBT002
        attacks_to_run: list[str] | None = None,
        version: str = "standard",
        is_tf_model: bool = False,  # noqa: FBT001, FBT002
        device: str | torch.device | None = None,
        log_path: str | None = None,
    ) -> None:
        if version not in {*VERSIONS, "custom"}:
            raise FrontierError(
                f"version {version!r}: expected 'standard' (4k queries), 'plus' (12k), 'rand' (1k, "
                "each the mean of 20 passes) or 'custom' with attacks_to_run; for other ensembles "
                "call advfrontier.evaluate"
            )
        if is_tf_model:
            raise FrontierError("is_tf_model is True: expected a model in PyTorch")
        if eps is None or not as_radius(eps) > 0:
            raise FrontierError(f"eps is {eps!r}: expected a positive radius such as 8 / 255")
        self.model, self.norm, self.eps, self.device = (
            model,
            norm_name(norm),
            float(as_radius(eps)),
            device,
        )
        self.seed = 42 if seed is None else seed
        self.version, self.verbose, self.log_path = version, verbose, log_path
        # With version="custom", as in AutoAttack; may be set later too.
        self.attacks_to_run = list(attacks_to_run or ())
        self._cheap = False
        self.eot = 20 if version == "rand" else 1  # passes per query, as AutoAttack has them
        self._log("")  # a log that cannot be written should not cost an evaluation
        self.evaluation: Evaluation | None = None  # of the last call
        self.black_box: Evaluation | None = None  # of the last call, where gradients failed a check

    def cheap(self) -> None:
        """Spend a quarter of the queries: 1k instead of 4k, as AutoAttack's short version."""
        self._cheap = True

    @property
    def _tier(self) -> str:
        return "1k" if self._cheap else VERSIONS.get(self.version, VERSIONS["standard"])

    def _ensemble(self) -> str:
        """Return the ensemble of the version, or the runs of `attacks_to_run`."""
        if not self.attacks_to_run:
            if self.version == "custom":
                raise FrontierError(
                    "version='custom' without attacks_to_run: expected some of "
                    f"{', '.join(ATTACKS)}, as in attacks_to_run=['apgd-ce', 'square']"
                )
            return self._tier
        runs: list[str] = []
        for name in self.attacks_to_run:
            if name not in ATTACKS:
                raise FrontierError(
                    f"attacks_to_run names {name!r}: expected some of {', '.join(ATTACKS)}"
                )
            runs += ATTACKS[name]
        budget = min(tier_queries(self._tier), MAX_QUERIES * len(runs))
        return f"{','.join(dict.fromkeys(runs))}@{budget}"

    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        return_labels: bool = False,  # noqa: FBT001, FBT002
        state_path: str | None = None,
    ) -> Any:
        """Attack all samples; `state_path` is a new or empty folder to go on from after a crash.

        Args:
            x_orig: Images (n, channels, height, width) in [0, 1].
            y_orig: True classes (n,).
            bs: Samples per batch.
            return_labels: Return the predicted classes of the points, too.
            state_path: New or empty folder of the record; the same call resumes it after a crash.
        """
        if state_path is not None:
            check_empty(state_path, but_for=("standard", "black-box"))
        _, points, labels = self._run(self._ensemble(), x_orig, y_orig, bs, state_path)
        points = points.to(x_orig)
        return (points, labels.to(y_orig.device)) if return_labels else points

    def _run(
        self, ensemble: str, x_orig: Tensor, y_orig: Tensor, bs: int, state_path: str | None = None
    ) -> tuple[Evaluation, Tensor, Tensor]:
        check_data(x_orig, y_orig)

        def attacked(ensemble: str, part: str) -> Evaluation:
            out = None if state_path is None else below(state_path, part)
            return self._evaluate(ensemble, x_orig, y_orig, bs, out)

        found = self.evaluation = attacked(ensemble, "standard")
        self.black_box = None
        points, labels = _within(self.eps, found)
        robust, cost = (
            found.distances > self.eps,
            f"{found.ensemble.total * self.eot} queries per sample",
        )
        flags = found.flags
        if {flag.kind for flag in flags} & _FAILED:
            other = self.black_box = attacked("black-box", "black-box")
            nearer = _within(self.eps, other)
            more = torch.from_numpy(
                (other.distances <= self.eps) & (other.distances < found.distances)
            )
            points[more], labels[more] = nearer[0][more], nearer[1][more]
            robust &= other.distances > self.eps
            cost += (
                f", and {other.ensemble.total * self.eot} of black-box runs, because gradients "
                "failed a check"
            )
            flags = tuple(dict.fromkeys((*flags, *other.flags)))
        self._log(
            f"initial accuracy: {found.robust_accuracy(0):.2%}\n"
            f"robust accuracy at {found.norm} {self.eps:g}: {robust.mean():.2%} ({cost})"
        )
        for flag in flags:
            self._log(f"note: {flag}")
        if doubtful := doubts(flags):
            warnings.warn(printable("; ".join(map(str, doubtful))), stacklevel=3)
        return found, points, labels

    def _evaluate(
        self,
        ensemble: str | Ensemble,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int,
        out: str | None = None,
    ) -> Evaluation:
        return evaluate(
            self.model,
            x_orig.detach().cpu(),
            y_orig.detach().cpu(),
            norm=self.norm,
            ensemble=ensemble,
            seed=self.seed,
            out=out,
            batch_size=bs,
            eot=self.eot,
            machine=Machine(self.device, progress=self.verbose),
        )

    def run_standard_evaluation_individual(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        return_labels: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[str, Any]:
        """Run every run of the paper's ensemble of the same size by itself.

        Args:
            x_orig: Images (n, channels, height, width) in [0, 1].
            y_orig: True classes (n,).
            bs: Samples per batch.
            return_labels: Return the predicted classes of the points, too.

        Returns:
            Name of the run to the points within ε that it found, with labels if asked for.
        """
        check_data(x_orig, y_orig)
        classes = self._classes(x_orig)
        ensemble = find_ensemble(f"paper-{self._tier}", self.norm, classes)
        found = {}
        for run, queries in ensemble.queries.items():
            alone = Ensemble.of(run, self.norm, {run: queries})
            points, labels = _within(self.eps, self._evaluate(alone, x_orig, y_orig, bs))
            points = points.to(x_orig)
            found[run] = (points, labels.to(y_orig.device)) if return_labels else points
        return found

    def _classes(self, x_orig: Tensor) -> int:
        with Oracle(self.model, device=self.device) as oracle:
            return oracle.logits(oracle.images(x_orig[:1]).detach()).shape[1]

    def clean_accuracy(self, x_orig: Tensor, y_orig: Tensor, bs: int = 250) -> float:
        """Return the share of images that are classified correctly (by a random model: mostly).

        Args:
            x_orig: Images (n, channels, height, width) in [0, 1].
            y_orig: True classes (n,).
            bs: Samples per batch.
        """
        x_orig, bs, right = check_data(x_orig, y_orig), whole_number(bs, "bs", least=1), 0
        with Oracle(self.model, device=self.device, eot=self.eot) as oracle:
            for x, y in zip(torch.split(x_orig, bs), torch.split(y_orig, bs), strict=True):
                passes = 1 if self.eot == 1 else LAST_LOOK
                share, _ = vote(oracle, oracle.images(x), oracle.labels(y), "accuracy", passes)
                right += int((share <= 1 / 2).sum())
        return right / len(x_orig)

    def _log(self, text: str) -> None:
        if self.verbose and text:
            print(printable(text), file=sys.stdout)  # noqa: T201  # as AutoAttack does
        if self.log_path:
            try:
                with open(self.log_path, "a", encoding="utf-8") as log:  # noqa: PTH123
                    log.write(text + "\n" if text else "")
            except OSError as error:
                raise FrontierError(
                    f"cannot write log_path={self.log_path}: {error.strerror}"
                ) from error


def _within(eps: float, found: Evaluation) -> tuple[Tensor, Tensor]:
    """Return the points within ε and their classes; the images and theirs where there are none."""
    near = torch.from_numpy((found.distances <= eps) & (found.distances > 0))
    points, images = found.adversarials, found.images()
    chosen = torch.where(near.view(-1, *(1,) * (points.ndim - 1)), points, images.to(points))
    return chosen, torch.where(near, found.predictions, found.clean_logits.argmax(1))
