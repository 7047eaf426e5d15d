"""The composition root: which objects there are, and how a configuration gets to them."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from sidecar.application.census import Census
from sidecar.application.clients import ClientDirectory
from sidecar.application.evaluator import RateLimitEvaluator
from sidecar.application.explain import Explainer
from sidecar.application.failure import WithoutStore
from sidecar.application.known_clients import FileClient
from sidecar.application.local import LocalCounters, Sharing
from sidecar.application.pieces import in_thread
from sidecar.application.readiness import Readiness
from sidecar.application.searching import Searches
from sidecar.application.store_watch import StoreWatch
from sidecar.application.usage import CounterUsage
from sidecar.application.user_rates import UserRates, rate_rule
from sidecar.domain.address import canonical_network
from sidecar.domain.decision import Decision
from sidecar.domain.identity import IdentityOptions
from sidecar.domain.request import Network
from sidecar.domain.ruleset import Policy, RuleSet
from sidecar.infrastructure.admin.access import Access, AdminKey, TokenRules
from sidecar.infrastructure.admin.api import OpenRoutes, routes
from sidecar.infrastructure.admin.clients import ClientRoutes
from sidecar.infrastructure.admin.counters import CounterRoutes
from sidecar.infrastructure.admin.explain import ExplainRoutes
from sidecar.infrastructure.admin.operations import OperationRoutes
from sidecar.infrastructure.admin.rate import RateRoutes
from sidecar.infrastructure.config.listen import AddressOf
from sidecar.infrastructure.config.loading import Configuration
from sidecar.infrastructure.config.masking import described
from sidecar.infrastructure.config.schema import Settings
from sidecar.infrastructure.http import access
from sidecar.infrastructure.http.access import Access as DataAccess
from sidecar.infrastructure.http.client_address import AddressSource
from sidecar.infrastructure.http.dialects import envoy, evaluate
from sidecar.infrastructure.http.front import Front, FrontOptions
from sidecar.infrastructure.http.headers import ResponseOptions
from sidecar.infrastructure.http.sources import Sources
from sidecar.infrastructure.redis.connection import Store
from sidecar.infrastructure.redis.control import RedisControlStore
from sidecar.infrastructure.redis.counters import Listeners, RedisCounterStore
from sidecar.infrastructure.telemetry.logs import AccessLog, CrowdLog, RefusalLog
from sidecar.infrastructure.telemetry.metrics import Metrics
from sidecar.infrastructure.telemetry.observers import Observers
from sidecar.reloading import Reloader

#: What one look at counters may wait for the store: an operator has more patience than a request.
LOOK_SECONDS = 1.0
_log = logging.getLogger("sidecar.store")


class Sidecar:
    """All objects of a running sidecar, with a configuration, and later with others that the reloader brings.

    Decisions, what the API keeps, and looks at counters have connections of their own: none waits for others.
    """

    def __init__(self, configuration: Configuration, counting: Store, control: Store, looking: Store) -> None:
        store = configuration.settings.store
        self._metrics = metrics = Metrics(embedded=is_embedded(configuration.settings))
        observers = Observers(metrics, RefusalLog())
        self._crowds = CrowdLog()
        self.readiness = Readiness()
        local = LocalCounters()
        self._without_store = without_store = WithoutStore(local)
        counters = RedisCounterStore(
            counting,
            prefix=store.key_prefix,
            timeout_seconds=store.timeout_ms / 1000,
            listeners=Listeners(metrics.store_answered, self._breaker_turned),
        )
        looks = RedisCounterStore(looking, prefix=store.key_prefix, timeout_seconds=LOOK_SECONDS)
        searches = Searches(looks)
        self.census = Census(looks, metrics)
        self._evaluator = RateLimitEvaluator(counters, observers, without_store, self.census)
        self._rates = UserRates(counters, observers, searches, without_store)
        self._usage = CounterUsage(searches)
        self._usage.on_forget = self._evaluator.counters_were_reset
        self._explainer = Explainer(looks, without_store, self.census)
        control_store = RedisControlStore(control, prefix=store.key_prefix)
        self._stores = counters, looks, control_store
        self._directory = ClientDirectory(control_store, self._publish, described)
        self.access = Access(metrics.admin_access_failed, AccessLog().failed)
        self.store_watch = StoreWatch(
            control_store, self._directory, self.readiness, _StoreNews(metrics, local.sharing)
        )
        self.front = Front(self._evaluator, self._rates, self.readiness, observers)
        self.reloader = Reloader(configuration, self._take_over, metrics.config_reloaded)
        self.admin_routes = routes(
            OpenRoutes(self.readiness, metrics.page),
            ClientRoutes(self._directory),
            CounterRoutes(self._directory, self._usage),
            OperationRoutes(self._directory, self.reloader.effective, self.reloader.reload_for_api),
            ExplainRoutes(self._explainer, evaluate.read_described, self._answer),
            RateRoutes(self._rates, self._directory),
        )
        self._apply(configuration.settings)
        self._files = _file_clients(configuration, {})
        self._directory.use_files(self._files, _policy(configuration.settings))

    async def aclose(self) -> None:
        """Asks the store nothing more; to be called before its clients are closed."""
        for store in self._stores:
            await store.aclose()

    async def _take_over(self, configuration: Configuration) -> list[Iterator[object]]:
        """Everything at once, between two requests, or nothing. Returns what is to be let go of then."""
        settings = configuration.settings
        clients = await in_thread(partial(_file_clients, configuration, self._files))
        left = await self._directory.take_over(clients, _policy(settings), partial(self._apply, settings))
        self._files = clients
        return left

    def _apply(self, settings: Settings) -> None:
        """What can fail comes before what changes."""
        rule = rate_rule(settings.rate.limit, settings.rate.window_seconds)
        front = _front_options(settings)
        # A library that tokens need may be missing.
        self.access.use(_admin_keys(settings), _token_rules(settings), settings.admin.failures_per_minute)
        self.census.alarm = settings.store.identifiers_alarm
        self._without_store.default = settings.store.on_unavailable
        self._rates.rule = rule
        self.front.options = front

    def port_crowded(self, port: str, closed: int) -> None:
        self._metrics.port_crowded(port, closed)
        self._crowds.closed(port, closed)

    def _breaker_turned(self, is_open: bool) -> None:
        self.readiness.open_breakers += 1 if is_open else -1
        self._metrics.breaker_turned(self.readiness.open_breakers)
        if is_open:
            _log.warning("the store does not answer: requests are decided without it, and do not wait")
        else:
            _log.info("the store answers again: requests are counted there")

    def _publish(self, rule_set: RuleSet) -> None:
        self._evaluator.rule_set = self._usage.rule_set = self._explainer.rule_set = rule_set
        self.census.rule_set = rule_set
        self._metrics.rules(rule_set)
        self._rates.enforcement = rule_set.policy.enforcement

    def _answer(self, decision: Decision) -> tuple[int, dict[str, str]]:
        """As a proxy would be answered."""
        answer = envoy.write(decision, self.front.options.response)
        return answer.status, answer.headers


@dataclass(frozen=True, slots=True)
class _StoreNews:
    """What is found out about the store goes into metrics, and the number of processes into their shares."""

    metrics: Metrics
    sharing: Sharing

    def store_reachable(self, reachable: bool) -> None:
        self.metrics.store_reachable(reachable)
        if not reachable:
            self.sharing.store_away()

    def store_evicts(self, evicts: bool) -> None:
        self.metrics.store_evicts(evicts)

    def live_processes(self, number: int) -> None:
        self.sharing.told(number)
        self.metrics.live_processes(self.sharing.processes)


def is_embedded(settings: Settings) -> bool:
    return settings.store.url.startswith("embedded:")


def _policy(settings: Settings) -> Policy:
    return Policy(
        default_client=settings.default_client,
        enforcement=settings.enforcement,
        on_missing=settings.identity.on_missing,
        decode_slashes=settings.paths.decode_slashes,
        count_preflights=settings.count_preflights,
        identity=IdentityOptions(
            ipv6_prefix=settings.client_ip.ipv6_prefix,
            jwt_payload_header=settings.identity.jwt_payload_header,
        ),
    )


def _front_options(settings: Settings) -> FrontOptions:
    sources, listen, response = _sources(settings), settings.listen, settings.response
    return FrontOptions(
        sources=sources,
        sources_of={
            name: replace(sources, address=_address_source(found))
            for name, found in settings.client_ip.dialects.items()
        },
        access=DataAccess(
            trusted_peers=tuple(chain(*map(_peers, listen.trusted_peers))),
            secret_header=listen.secret_header,
            secrets=tuple(secret.encode() for secret in listen.secrets),
        ),
        apis=frozenset(listen.apis),
        response=ResponseOptions(
            unavailable_status=response.unavailable_status,
            reset_epoch=response.reset == "epoch",
            legacy_headers=response.legacy_headers,
            ietf_headers=response.ietf_headers,
            envoy_ratelimited=response.envoy_ratelimited,
        ),
    )


def _peers(written: str) -> tuple[Network, ...]:
    return {"loopback": access.LOOPBACK, "private": access.PRIVATE}.get(written) or access.networks(written)


def _address_source(found: AddressOf) -> AddressSource:
    return AddressSource(
        header=found.header,
        trusted_hops=found.trusted_hops,
        trusted_networks=tuple(map(canonical_network, found.trusted_networks)),
    )


def _sources(settings: Settings) -> Sources:
    return Sources(
        address=_address_source(settings.client_ip),
        session_header=settings.identity.session_header,
        session_cookie=settings.identity.session_cookie,
        user_header=settings.identity.user_header,
        client_header=settings.client_header,
    )


def _admin_keys(settings: Settings) -> list[AdminKey]:
    return [AdminKey(key.name, key.key, key.role == "admin") for key in settings.admin.keys if key.key]


def _token_rules(settings: Settings) -> TokenRules | None:
    jwt = settings.admin.jwt
    return TokenRules(**dict(jwt) | {"algorithms": jwt.pinned}) if jwt else None


def _file_clients(configuration: Configuration, known: Mapping[str, FileClient]) -> dict[str, FileClient]:
    """Those that are `known` and the same are not made again."""
    found: dict[str, FileClient] = {}
    for part in configuration.reading.parts:
        file, changed = str(part.path), _changed_at(part.path)
        for client in part.clients:
            before = known.get(client.id)
            same = before and before.client is client and (before.file, before.loaded_at) == (file, changed)
            found[client.id] = before if before and same else FileClient(client, file, changed)
    return found


def _changed_at(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:  # it was there when it was read
        return datetime.now(UTC)
