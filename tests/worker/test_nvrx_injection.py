"""Which parameters of a function NVRx's CallWrapper is given to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

import pytest

from ft_supervisor.compat import nvrx as inprocess
from ft_supervisor.compat.nvrx import CallWrapper

if TYPE_CHECKING:
    from decimal import Decimal  # of no use here: an annotation that cannot be evaluated when the script runs


def bare(wrapper: CallWrapper) -> object:
    return wrapper


def optional(wrapper: Optional[inprocess.CallWrapper] = None) -> object:  # noqa: UP045
    return wrapper


def beside_one_for_type_checkers(wrapper: inprocess.CallWrapper | None = None, number: Decimal | None = None) -> object:
    return wrapper


def keyword(*, number: Decimal | None = None, wrapper: CallWrapper | None = None) -> object:
    return wrapper


@pytest.mark.parametrize("function", [bare, optional, beside_one_for_type_checkers, keyword, partial(keyword)])
def test_a_parameter_with_this_annotation_gets_it(function: Callable[..., Any]) -> None:
    assert isinstance(inprocess.Wrapper()(function)(), CallWrapper)


class CallWrapperFactory:
    """Another class, whose name begins alike."""


def other(wrapper: CallWrapperFactory | None = None, number: Decimal | None = None) -> object:
    return wrapper


def test_no_other_parameter_gets_it() -> None:
    assert inprocess.Wrapper()(other)() is None
