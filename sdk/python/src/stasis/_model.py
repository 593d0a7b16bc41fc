"""What every answer has in common: it is read from JSON, cannot be changed, and keeps what this version has no name for.

To a type checker each answer is a frozen dataclass. At run time it is not one: making two hundred dataclasses takes
most of a second, at each start of a program that needs three of them. Here a class costs nothing until it is used.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda cls: cls


ModelType = TypeVar("ModelType", bound="Model")

# Fields that must not be in a traceback or a log: whoever has them may act as their owner.
SECRET = frozenset({"token"})

# Under which name the generation of an answer stands beside its fields: no field is called so.
ETAG = "@etag"


class _Named:
    """A field whose name in JSON is none in Python."""

    def __init__(self, name: str) -> None:
        self.name = name


def named(*, name: str, default: Any = None) -> Any:
    """A field that is called otherwise in JSON."""
    return _Named(name)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(named,))
class Model:
    """An answer. Fields that the server sends and this version does not know are in `raw`, and nowhere else."""

    raw: Mapping[str, Any] = {}

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            fields = _readers(type(self))
            unknown = values.keys() - fields.keys() - {"raw"}
            if unknown:
                raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
            for name in ("raw", *fields):
                default = {} if name == "raw" else None
                object.__setattr__(self, name, values.get(name, default))

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(f"{type(self).__name__} is an answer, and cannot be changed: {name}")

        def __delattr__(self, name: str) -> None:
            raise AttributeError(f"{type(self).__name__} is an answer, and cannot be changed: {name}")

        def __eq__(self, other: object) -> bool:
            if type(other) is not type(self):
                return NotImplemented
            return all(getattr(self, name) == getattr(other, name) for name in _readers(type(self)))

        __hash__ = None

    @property
    def etag(self) -> int | None:
        """The generation that an answer of the service is about: what `if_match` takes."""
        found = self.raw.get(ETAG)
        return found if isinstance(found, int) else None

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Reads an answer. What is missing is `None`; what has another type than it should is taken as it is."""
        if not isinstance(document, Mapping):
            raise TypeError(f"{cls.__name__} is read from an object, not from {type(document).__name__}")
        values: dict[str, Any] = {"raw": document}
        for attribute, (name, read) in _readers(cls).items():
            value = document.get(name)
            values[attribute] = value if value is None else read(value)
        return cls(**values)

    def __repr__(self) -> str:
        fields = _readers(type(self))
        shown = [f"{name}={'***' if name in SECRET else repr(getattr(self, name))}" for name in fields]
        return f"{type(self).__name__}({', '.join(shown)})"


def _fields(cls: Any) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """How each field is read, by its attribute: its name in JSON, and what makes a value of it."""
    readers = {}
    for attribute, hint in typing.get_type_hints(cls).items():
        if attribute == "raw":
            continue
        marked = getattr(cls, attribute, None)
        readers[attribute] = (marked.name if isinstance(marked, _Named) else attribute, _reader(hint))
    return readers


_readers: Callable[[Any], dict[str, tuple[str, Callable[[Any], Any]]]] = functools.cache(_fields)


def _as_it_is(value: Any) -> Any:
    return value


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [one for one in arguments if one is not types.NoneType]
        return _reader(inner[0]) if len(inner) == 1 else _as_it_is
    if origin is list:
        return functools.partial(_list_of, _reader(arguments[0]))
    if origin is dict:
        return functools.partial(_dict_of, _reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Model):
        return functools.partial(_model_of, hint)
    return _as_it_is


def _list_of(each: Callable[[Any], Any], value: Any) -> Any:
    return [each(one) for one in value] if isinstance(value, list) else value


def _dict_of(each: Callable[[Any], Any], value: Any) -> Any:
    return {key: each(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def _model_of(cls: type[Model], value: Any) -> Any:
    return cls.from_json(value) if isinstance(value, Mapping) else value
