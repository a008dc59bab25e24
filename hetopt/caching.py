"""Methods and functions whose values are kept; a method's die with its object."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

_P = ParamSpec("_P")
_R = TypeVar("_R")


class cached_method(Generic[_P, _R]):
    """A method that is worked out once for each of its arguments, which are hashable.

    Its cache, of at most `most` values, replaces the method in the object.
    """

    most: int | None = None

    def __init__(self, method: Callable[Concatenate[Any, _P], _R]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(
        self, instance: None, owner: type
    ) -> Callable[Concatenate[Any, _P], _R]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Callable[_P, _R]: ...

    def __get__(self, instance: object | None, owner: type) -> Callable[..., _R]:
        if instance is None:
            return self._method
        own = self._method.__get__(instance, owner)
        kept: Callable[..., _R] = lru_cache(self.most)(own)
        instance.__dict__[self._name] = kept
        return kept


class _Digested(Protocol):
    @property
    def digest(self) -> str: ...


_D = TypeVar("_D", bound=_Digested)
_KEPT = 256  # values of one function, of which the oldest go first


def kept_by_digest(function: Callable[[_D], _R]) -> Callable[[_D], _R]:
    """Return the function of a record, whose latest values are kept by its digest."""
    kept: dict[str, _R] = {}

    @wraps(function)
    def known(record: _D) -> _R:
        if record.digest not in kept:
            while len(kept) >= _KEPT:
                del kept[next(iter(kept))]
            kept[record.digest] = function(record)
        return kept[record.digest]

    return known
