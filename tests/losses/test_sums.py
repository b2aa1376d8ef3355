"""Means of losses that are infinite: computed without a warning, as strict warnings would tell."""

import math

import numpy as np
import pytest

import edgetrain as et
from edgetrain.losses.terms import terms_of_recipe
from edgetrain.program import TARGET
from edgetrain.runtime.samples.sums import Sums

from .test_several import LOSSES, two_heads

INF = math.inf


@pytest.fixture(scope="module")
def terms():
    program = et.compile(two_heads().model("class", "box"), losses=LOSSES, minibatch=8)
    return terms_of_recipe(program.recipe, TARGET)


@pytest.mark.parametrize(("total", "weight", "mean"), [(INF, 0, INF), (INF, INF, math.nan)])
def test_a_loss_that_is_infinite_has_its_mean(terms, total, weight, mean) -> None:
    sums = Sums(terms, np.array([[2.0, 4, 3, 0], [total, 8, 0, weight]]), np.array([1.0, 0.0]))
    result = sums.results()
    assert (result["class_loss"], result["class_accuracy"]) == (0.5, 0.75)
    np.testing.assert_equal(result["box_loss"], mean)
    assert math.isnan(result["loss"])  # 0 times what is not finite


def test_infinities_of_both_signs_have_no_sum(terms) -> None:
    high, low = (Sums(terms, np.full((2, 4), sign * INF), np.ones(2)) for sign in (1, -1))
    assert all(math.isnan(mean) for mean in (high + low).means)
