"""The ground of all kinds: base model, object metadata, conditions, references."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, get_args

from annotated_types import MaxLen
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from banlieue.api.markers import ATOMIC_MAP, VALIDATIONS, Definition, Rule, list_map
from banlieue.api.types import (
    LabelKey,
    LabelMap,
    LabelValue,
    NamespaceName,
    ObjectName,
    SecretKey,
    shortened,
)

_INITIALISMS = {"id": "ID", "uid": "UID", "tls": "TLS", "mib": "MiB", "gib": "GiB"}


def to_camel(name: str) -> str:
    """Spell a Python field name as the API does: ``memory_mib`` is ``memoryMiB``.

    A trailing underscore, which keeps a name off Python's keywords, is dropped.
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


class Model(BaseModel):
    """Base of everything that is stored in the API.

    Reading ignores fields it does not know, so that an object stored by a newer version does not
    break an older reader. Writing never shows a null.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        use_enum_values=False,
    )

    cel: ClassVar[tuple[Rule, ...]] = ()
    """Rules on the whole object that this class adds to those of its bases."""

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        """Give every rule on the whole object: a backend's kind cannot lose the common ones."""
        every = [rule for base in reversed(cls.__mro__) for rule in vars(base).get("cel", ())]
        return tuple(dict.fromkeys(every))

    @classmethod
    def from_api(cls, value: Mapping[str, Any]) -> Self:
        """Read what the API server gave.

        Raises:
            pydantic.ValidationError: the value breaks the schema of the model.
        """
        return cls.model_validate(value)

    def to_api(self) -> dict[str, Any]:
        """Give the object as JSON data for the API server.

        Unset fields are left out. So are empty lists, maps and objects, except where a field is
        required, or may be absent *or* empty and the two differ (an empty selector selects
        everything).
        """
        shown: dict[str, Any] = {}
        values = self.__dict__
        for name, spelled, kept_empty in _spellings(type(self)):
            value = values[name]
            if value is None:
                continue
            kind = type(value)
            if kind in _SCALARS:
                shown[spelled] = value
                continue
            data = _WRITERS[kind](value)
            if data or kept_empty or not isinstance(data, dict | list):
                shown[spelled] = data
        return shown

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy the fields, which are data as the API has it: no cycles, nothing shared.

        Pydantic's own way is many times slower, and every pass copies a status.
        """
        cls = type(self)
        fresh = cls.__new__(cls)
        object.__setattr__(fresh, "__dict__", _copied_map(self.__dict__))
        object.__setattr__(fresh, "__pydantic_extra__", None)
        object.__setattr__(fresh, "__pydantic_fields_set__", set(self.__pydantic_fields_set__))
        object.__setattr__(fresh, "__pydantic_private__", None)
        return fresh

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        target = handler.resolve_ref_schema(schema)
        if rules := cls.rules():
            target[VALIDATIONS] = [rule.to_api() for rule in rules]
        for name, info in cls.model_fields.items():
            # Pydantic shows plain defaults, but not those that are made: a nested model's.
            if isinstance(info.default_factory, type) and issubclass(info.default_factory, Model):
                default = info.default_factory().to_api()
                if default:
                    target["properties"][info.alias or name]["default"] = default
        return schema


def _is_optional(info: FieldInfo) -> bool:
    return NoneType in get_args(info.annotation)


@cache
def _spellings(cls: type[Model]) -> tuple[tuple[str, str, bool], ...]:
    """Of every field its name here and in the API, and whether it is shown when empty."""
    return tuple(
        (
            name,
            info.serialization_alias or info.alias or name,
            info.is_required() or _is_optional(info),
        )
        for name, info in cls.model_fields.items()
    )


_SCALARS = frozenset({str, int, float, bool, NoneType})
_FIXED = (Enum, datetime)


class _Ways(dict[type, Callable[[Any], Any]]):
    """What is done with values of a kind, found once: telling a model from others is slow."""

    def __init__(self, find: Callable[[type], Callable[[Any], Any]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        way = self[kind] = self._find(kind)
        return way


def _copier(kind: type) -> Callable[[Any], Any]:
    if kind is list:
        return _copied_list
    if kind is dict:
        return _copied_map
    if issubclass(kind, Model):
        return kind.__deepcopy__
    return _itself if kind in _SCALARS or issubclass(kind, _FIXED) else copy.deepcopy


_COPIERS = _Ways(_copier)


def _itself(value: object) -> object:
    return value


def _copied_list(value: list[Any]) -> list[Any]:
    return [it if type(it) in _SCALARS else _COPIERS[type(it)](it) for it in value]


def _copied_map(value: dict[str, Any]) -> dict[str, Any]:
    return {k: v if type(v) in _SCALARS else _COPIERS[type(v)](v) for k, v in value.items()}


def _writer(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, list | tuple):
        return _list_to_data
    if issubclass(kind, Model):
        return kind.to_api
    if issubclass(kind, StrEnum):
        return attrgetter("_value_")  # past a slow descriptor
    if issubclass(kind, datetime):
        return format_time
    return _map_to_data if issubclass(kind, Mapping) else _itself


_WRITERS = _Ways(_writer)


def _list_to_data(value: Sequence[Any]) -> list[Any]:
    return [it if type(it) in _SCALARS else _WRITERS[type(it)](it) for it in value]


def _map_to_data(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): v if type(v) in _SCALARS else _WRITERS[type(v)](v) for k, v in value.items()}


@lru_cache(maxsize=4096)
def format_time(value: datetime) -> str:
    """Write a time the one way every Go reader accepts: RFC 3339, UTC, whole seconds."""
    moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    return moment.isoformat(timespec="seconds")[:-6] + "Z"


def _whole_seconds_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a zone")
    if value.tzinfo is UTC and not value.microsecond:
        return value
    return value.astimezone(UTC).replace(microsecond=0)


_ANY_TIME = TypeAdapter(datetime)


@lru_cache(maxsize=4096)
def _moment(text: str) -> object:
    """The moment a text names; one that names none is what the model complains about."""
    try:
        return _whole_seconds_utc(_ANY_TIME.validate_python(text))
    except ValueError:
        return text


def _known(value: object) -> object:
    # The same few times are read over and over: every condition of every object has one.
    return _moment(value) if type(value) is str else value


Time = Annotated[datetime, AfterValidator(_whole_seconds_utc), BeforeValidator(_known)]
"""A moment, kept in UTC and whole seconds; a time without zone is refused."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind lives in the API.

    Attributes:
        group: API group; empty for core kinds.
        version: served version we speak.
        kind: CamelCase singular.
        plural: lower-case plural used in paths.
        namespaced: whether objects live in namespaces.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the bare version for core kinds."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition object."""
        return f"{self.plural}.{self.group}"

    @property
    def singular(self) -> str:
        """Lower-case kind, as used in finalizers and CRD names."""
        return self.kind.lower()


class OwnerReference(Model):
    """An object that this object belongs to; the garbage collector deletes it with its owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """The metadata every object has."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None


class ConditionStatus(StrEnum):
    """The three answers a condition can give."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


_MESSAGE_LENGTH = 32768


class Condition(Model):
    """One aspect of the state of an object, as people and tools read it (metav1.Condition)."""

    type: str = Field(
        min_length=1,
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9][-A-Za-z0-9_.]*$",
        description="What the condition is about, such as Ready.",
    )
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, as one CamelCase word for machines.",
    )
    message: Annotated[str, shortened(_MESSAGE_LENGTH)] = Field(
        default="",
        max_length=_MESSAGE_LENGTH,
        description="Why, as a sentence for people, and what to do next.",
    )
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation this was computed from."
    )


Conditions = Annotated[list[Condition], MaxLen(32), list_map("type")]


class NameRef(Model):
    """A reference to an object by name; where it lives follows from the field."""

    name: ObjectName = Field(description="Name of the object.")


class NamespacedRef(Model):
    """A reference to an object in a named namespace."""

    name: ObjectName = Field(description="Name of the object.")
    namespace: NamespaceName = Field(description="Namespace of the object.")


class SecretKeyRef(Model):
    """A reference to one key of a Secret."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: SecretKey | None = Field(
        default=None, description="Key in the Secret's data. Default: `ca.crt`."
    )


class ConfigMapKeyRef(Model):
    """A reference to one key of a ConfigMap."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: SecretKey | None = Field(
        default=None, description="Key in the ConfigMap's data. Default: `ca.crt`."
    )


class KindRef(Model):
    """A reference to an object of any kind; the version follows from the installed CRD."""

    api_group: str = Field(min_length=1, max_length=253, description="API group of the kind.")
    kind: str = Field(min_length=1, max_length=63, description="Kind of the object.")
    name: ObjectName = Field(description="Name of the object.")
    namespace: NamespaceName = Field(description="Namespace of the object.")


class SelectorOperator(StrEnum):
    """How a label requirement compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(Model):
    """One requirement on the labels of an object."""

    key: LabelKey = Field(description="Label the requirement is about.")
    operator: SelectorOperator = Field(description="How the label is compared.")
    values: list[LabelValue] = Field(
        default_factory=list,
        max_length=32,
        description="Values to compare with; left out with Exists and DoesNotExist.",
    )

    cel = (
        Rule(
            "self.operator in ['Exists', 'DoesNotExist'] ? "
            "(!has(self.values) || size(self.values) == 0) : "
            "(has(self.values) && size(self.values) > 0)",
            "values must be given with operator In or NotIn, and left out with Exists or "
            "DoesNotExist",
            ".values",
        ),
    )


class LabelSelector(Model):
    """Selects objects by their labels; an empty one selects every object."""

    match_labels: LabelMap = Field(
        default_factory=dict,
        max_length=16,
        description="Labels an object must have with exactly these values.",
    )
    match_expressions: list[LabelRequirement] = Field(
        default_factory=list,
        max_length=16,
        description="Requirements that must all be met.",
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels satisfy every requirement, with the semantics of Kubernetes."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(requirement, labels) for requirement in self.match_expressions
        )


Selector = Annotated[LabelSelector, ATOMIC_MAP]


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    match requirement.operator:
        case SelectorOperator.IN:
            return labels.get(requirement.key) in requirement.values
        case SelectorOperator.NOT_IN:
            return labels.get(requirement.key) not in requirement.values
        case SelectorOperator.EXISTS:
            return requirement.key in labels
        case SelectorOperator.DOES_NOT_EXIST:
            return requirement.key not in labels


class ResourceObject(Model):
    """Base of all kinds: what ``kubectl get -o yaml`` shows.

    A kind sets ``resource`` and ``definition`` and declares ``spec`` and, where it has one,
    ``status``.
    """

    resource: ClassVar[Resource]
    definition: ClassVar[Definition] = Definition()

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    def model_post_init(self, _context: object, /) -> None:
        """Fill kind and version of an object made in the process."""
        resource = getattr(type(self), "resource", None)
        if isinstance(resource, Resource):
            if not self.api_version:
                self.api_version = resource.api_version
            if not self.kind:
                self.kind = resource.kind
