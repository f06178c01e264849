"""Amounts of custom resources, and the addresses that are handed out for them."""

from __future__ import annotations

import pytest

from emberkeep.slots.custom.addresses import ResourceAddresses, amounts_of, choose, shared
from emberkeep.slots.custom.amounts import amounts, fit, grows, minus, plus, said, total

GPU, TWO_GPUS, FPGA = amounts({"gpu": 1}), amounts({"gpu": 2}), amounts({"fpga": 1})
OFFERED = (ResourceAddresses(name="gpu", addresses=("0", "1", "2")), ResourceAddresses(name="fpga", addresses=("f",)))


def test_amounts_are_added_and_subtracted_by_name() -> None:
    assert plus(GPU, GPU) == TWO_GPUS
    assert plus(GPU, FPGA) == plus(FPGA, GPU) == amounts({"gpu": 1, "fpga": 1})
    assert minus(TWO_GPUS, TWO_GPUS) == ()
    assert minus((), GPU) == amounts({"gpu": -1})
    assert total([GPU, (), FPGA, GPU]) == amounts({"gpu": 2, "fpga": 1})


@pytest.mark.parametrize(
    ("needed", "offered", "fits"),
    [
        ((), (), True),
        ((), GPU, True),
        (GPU, (), False),
        (GPU, GPU, True),
        (GPU, TWO_GPUS, True),
        (TWO_GPUS, GPU, False),
        (GPU, FPGA, False),
        (amounts({"gpu": 1, "fpga": 1}), TWO_GPUS, False),
        (GPU, amounts({"gpu": -1}), False),
    ],
)
def test_an_amount_fits_if_each_resource_does(needed: tuple, offered: tuple, fits: bool) -> None:  # type: ignore[type-arg]
    assert fit(needed, offered) == fits


def test_only_growth_of_a_resource_is_growth() -> None:
    assert grows((), GPU)
    assert grows(amounts({"gpu": 2, "fpga": 1}), amounts({"gpu": 1, "fpga": 2}))
    assert not grows(TWO_GPUS, GPU)
    assert not grows(GPU, GPU)
    assert not grows(GPU, ())


@pytest.mark.parametrize(
    ("each", "text"),
    [
        ((), ""),
        (GPU, "1 gpu"),
        (amounts({"gpu": 2, "fpga": 1}), "1 fpga and 2 gpu"),
        (amounts({"a": 1, "b": 2, "c": 3}), "1 a, 2 b and 3 c"),
    ],
)
def test_amounts_in_words(each: tuple, text: str) -> None:  # type: ignore[type-arg]
    assert said(each) == text


def test_addresses_are_chosen_once() -> None:
    assert amounts_of(OFFERED) == amounts({"gpu": 3, "fpga": 1})
    first = choose(OFFERED, (), amounts({"gpu": 2}))
    assert first == (ResourceAddresses(name="gpu", addresses=("0", "1")),)
    second = choose(OFFERED, first, amounts({"gpu": 1, "fpga": 1}))
    assert second == (
        ResourceAddresses(name="fpga", addresses=("f",)),
        ResourceAddresses(name="gpu", addresses=("2",)),
    )
    assert not shared([*first, *second])
    assert shared([*first, ResourceAddresses(name="gpu", addresses=("1",))])
    assert not shared([*first, ResourceAddresses(name="fpga", addresses=("1",))])
