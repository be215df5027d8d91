"""How an error reaches the user of Spark: its sentence, without the way through our own code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from store_core.errors import StoreError

__all__ = ["one_sentence"]

P = ParamSpec("P")
T = TypeVar("T")


def one_sentence(function: Callable[P, T]) -> Callable[P, T]:
    """Spark shows a worker's exception as a formatted traceback: for errors that explain themselves it is kept to one frame."""

    @wraps(function)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except StoreError as e:
            raise e.with_traceback(None) from None

    return plain
