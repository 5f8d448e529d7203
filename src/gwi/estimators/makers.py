"""From what `fit` was given to what makes the fit: of a table, a stream of rows, or a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from gwi import parts
from gwi._validation import is_source
from gwi.estimators import inputs
from gwi.estimators.frame_means import on_frames
from gwi.estimators.module_rows import laid_out
from gwi.estimators.strata import strata_to_learn
from gwi.exceptions import GWIWarning
from gwi.fitting import pipeline
from gwi.fitting.data import FitOptions
from gwi.fitting.frozen_network import frozen_fit, wants_features
from gwi.fitting.joint_training import joint_network_fit, split_batches
from gwi.fitting.learners import TRAIN_HERE, name_of
from gwi.fitting.paper import paper_fit
from gwi.fitting.priors import infinite
from gwi.fitting.stream_data import in_memory, stream_data, validation_arrays
from gwi.fitting.task import Fit
from gwi.models.strata import Strata
from gwi.streaming.loaders import as_source
from gwi.tables.rows import RowSource

# From this share of copies among the rows on a warning says so.
MANY_COPIES = 0.2
# The share of the rows that joint training sets apart when no validation rows are given.
VALIDATION_SHARE = 0.1


def maker_of(estimator: Any, brought: inputs.Brought, options: FitOptions) -> Callable[[], Fit]:
    """What makes the fit of a table, a stream or a network from rows wherever they are."""
    features, is_network = None, estimator._network() is not None
    mean, brought = laid_out(estimator.mean, estimator._network(), estimator.kernel, brought)
    if is_source(brought.X) and not (is_network and isinstance(brought.X, DataLoader)):
        source = as_source(brought.X, brought.y, labels=estimator._targets.are_labels)
        rows = in_memory(source)
        if rows is None:
            return _of_stream(estimator, source, brought, options)
        features = source.features
        judging = validation_arrays(brought.validation, features, labels=estimator._targets.are_labels)
        brought = replace(brought, X=rows.x, y=estimator._targets.from_source(rows.y, brought.y), validation=judging)
    if is_network and (estimator._trains_jointly or (estimator._is_frozen and _has_any_shape(estimator, brought.X))):
        maker = _of_network(estimator, brought, mean, options)
    else:
        maker = _of_table(estimator, brought, features, options)
    if features is not None:
        estimator.feature_names_in_ = np.array(features, dtype=object)
    return maker


def _has_any_shape(estimator: Any, X: Any) -> bool:
    """Whether rows are more than a table's, or the kernel is on what a network makes of them."""
    return isinstance(X, DataLoader) or len(getattr(X, "shape", ())) > 2 or wants_features(estimator.kernel, (1,))


def _of_table(estimator: Any, brought: inputs.Brought, features: Any, options: FitOptions) -> Callable[[], Fit]:
    training = inputs.training_rows(estimator, brought)
    validation = brought.validation
    if validation is not None and not isinstance(validation, DataLoader):
        names = getattr(estimator, "feature_names_in_", features)
        validation = validation_arrays(validation, names, labels=estimator._targets.are_labels)
    judged = None if validation is None else inputs.validation_rows(estimator, validation)
    if judged is not None:
        inputs.require_unseen((training.x, training.y), judged)
    pairs = inputs.given_folds(estimator.cv, brought, len(training.place))
    if not estimator._by_paper:
        in_time = isinstance(estimator.cv, str) and estimator.cv == "time"
        training = (training if in_time or judged is not None else training.ordered()).without_copies(pairs)
        if training.num_copies > MANY_COPIES * (len(training.x) + training.num_copies):
            warnings.warn(f"{training.note}. If copies should count more, pass sample_weight.", GWIWarning, stacklevel=4)
    if len(training.x) < 2:
        raise ValueError("fit needs at least two rows that differ and have a positive weight; got one.")
    if pairs:
        options = replace(options, cv=training.folds(pairs))
    options = replace(options, strata=_strata(estimator, brought, training.strata))
    task = estimator._task(training.x, training.y, training.weight, training.groups)
    options = replace(options, context=inputs.context_rows(estimator, brought.context))
    data = pipeline.array_data(
        task, training.x, training.y, options, weight=training.weight, validation=judged, groups=training.groups
    ).noted(training.note)
    if not estimator._by_paper:
        means = on_frames(estimator, inputs.asked_means(estimator.mean), brought, training)
        return partial(pipeline.fit, data, task, means, options)
    if validation is not None:
        raise ValueError("The paper's protocol chooses its own validation rows; leave validation out.")
    part = estimator.mean if isinstance(estimator.mean, parts.Paper) else parts.Paper()
    return partial(paper_fit, part, estimator.tempering, data, options)


def _strata(estimator: Any, brought: inputs.Brought, learned: NDArray[Any] | None) -> Strata | None:
    """Of the rows that judge: of those that are learned from, or of the validation rows."""
    if brought.strata is None:
        return None
    if getattr(estimator._targets, "are_bounds", False) or (estimator._by_paper and estimator._network() is None):
        raise ValueError("strata needs held-out rows whose targets are known, which this fit does not have; leave it out.")
    validation = brought.validation
    if learned is None and not (isinstance(validation, tuple | list) and len(validation) == 2):
        raise ValueError("With a module, strata belongs to the validation rows: pass validation=(X, y) and one value for each.")
    values = learned if learned is not None else strata_to_learn(validation[0], brought.strata, len(validation[1]))
    return Strata.of(values)


def _of_stream(estimator: Any, source: RowSource, brought: inputs.Brought, options: FitOptions) -> Callable[[], Fit]:
    given = (brought.sample_weight, brought.groups, brought.context, brought.strata)
    if any(part is not None for part in given) or estimator.cv != "auto" or estimator._by_paper:
        raise ValueError(
            "A fit from a path, dataset or loader takes neither sample_weight, groups, context, strata, cv nor the paper's "
            "protocol; pass arrays."
        )
    data = stream_data(
        source,
        options.generator,
        labels=estimator._targets.are_labels,
        validation=brought.validation,
        device=options.device,
        checkpoints=brought.checkpoints,
        estimator=estimator,
        report=options.report,
    )
    estimator._targets.learn_source(data.classes, brought.y, len(data.y))
    estimator.n_features_in_ = data.x.shape[1]
    if source.features is not None:
        estimator.feature_names_in_ = np.array(source.features, dtype=object)
    return partial(pipeline.fit, data, estimator._task(), inputs.asked_means(estimator.mean), options)


def _of_network(estimator: Any, brought: inputs.Brought, mean: Any, options: FitOptions) -> Callable[[], Fit]:
    if options.divergence == "kl":
        raise infinite(name_of(mean))
    if options.prior_mean is not None:
        raise ValueError("prior_mean is for kernel means, which return to it far from the data; with a module leave it out.")
    if any(part is not None for part in (brought.sample_weight, brought.groups, brought.context)):
        raise ValueError("A module as mean takes neither sample_weight, groups nor context; leave them out.")
    training, shape = inputs.training_batches(estimator, brought.X, brought.y)
    validation = brought.validation
    if validation is not None:
        rows, targets = (validation, None) if isinstance(validation, DataLoader) else validation
        judged = inputs.validation_batches(estimator, rows, targets, shape)
        if training.targets is not None and judged.targets is not None:
            inputs.require_unseen((training.rows, training.targets), (judged.rows, judged.targets))
    elif estimator._is_frozen:
        raise ValueError(
            "A torch module is used as it is: it may have been trained on these rows, and then its errors on them are too small. "
            f"Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen)). {TRAIN_HERE}"
        )
    elif isinstance(training.rows, DataLoader):
        raise ValueError("Rows from a loader cannot be held out: pass validation=(X_unseen, y_unseen) or another loader.")
    else:
        training, judged = split_batches(training, VALIDATION_SHARE, options.generator)
    options = replace(options, strata=_strata(estimator, brought, None))
    if estimator._is_frozen and not estimator._by_paper:
        part = mean if isinstance(mean, parts.Frozen) else parts.Frozen(mean)
        return partial(frozen_fit, part, training, judged, shape, estimator._task(None, training.targets), options)
    return partial(joint_network_fit, mean, training, judged, shape, estimator._task(), options)
